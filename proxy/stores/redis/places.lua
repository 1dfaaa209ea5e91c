-- The places of one cooldown: how many the fleet has, and which part of them the sender gets.
--
-- Law: there is one number of places for all holders, and one first place, for the holder that reported the pushback
-- first. Each holder that holds calls, or has attempts with a place, has a rank; the places are divided equally among
-- the ranks, and the remainder goes to the lowest. A holder loses its rank when it has neither, and when it is silent
-- for as long as a place may be in use.
--
-- The hash: begun (when the pushback was reported), ends (when its delay is over), places, threshold (up to which they
-- double; -1: none), active (the number of ranks), holding (how many of their holders hold calls), scanned (when they
-- were counted), and for each holder its rank, sequence, grown, seen, and whether it holds calls.
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
-- the age of the attempt that got a pushback, and the pushback's delay (seconds), if the sender reports one
local age, delay = tonumber(ARGV[4]), tonumber(ARGV[5])
local grown, wanted = tonumber(ARGV[6]), tonumber(ARGV[7])  -- places that the sender added, in all; and would use now
local known = tonumber(ARGV[8])             -- the number of places that the sender knows
local dead = tonumber(ARGV[9])              -- the longest that a place is in use, in seconds
local queued = tonumber(ARGV[10])           -- calls that the sender holds
local seldom, a_record = 0.05, 0.0001       -- seconds between two counts, at least; and for each holder

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', key, 'begun', 'ends', 'places', 'threshold', 'active', 'scanned', holder, 'holding')
local begun, ends, places, threshold = tonumber(state[1]), tonumber(state[2]), tonumber(state[3]), tonumber(state[4])
local active, scanned, record = tonumber(state[5]) or 0, tonumber(state[6]) or 0, state[7]
local holding, held_before = tonumber(state[8]) or 0, 0
local holds = queued > 0 and 1 or 0
local function text(number) return string.format('%.17g', number) end
local function drop(fields)
  for i = 1, #fields, 1000 do redis.call('HDEL', key, unpack(fields, i, math.min(i + 999, #fields))) end
end

if not begun and not age and wanted == 0 then return {'', text(known), '0', '-1', '0'} end
if age and (not begun or now - age > begun) then
  if begun and (now < ends or holding > 0) then
    places = math.max(1, math.floor(places / 2))
    threshold = places
  else
    places, threshold = 1, -1
  end
  begun, ends, active, holding, scanned, record = now, 0, 0, 0, now, false
  drop(redis.call('HKEYS', key))
elseif not begun then
  begun, ends, places, threshold = now, 0, known, -1  -- the key is new: take what the first sender knows
end
if age then ends = math.max(ends, now + delay - age) end

local rank, last, before = -1, 0, grown
if record then
  local _
  rank, last, before, _, held_before = struct.unpack('<ddddd', record)
  if sequence <= last then return {'late'} end
end
places = places + math.max(0, grown - before)
holding = math.max(0, holding + holds - held_before)

if now - scanned >= math.max(seldom, active * a_record) or now < scanned then
  local all, found, gone = redis.call('HGETALL', key), {}, {}
  holding = holds
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'h:' and all[i] ~= holder then
      local its, its_last, its_grown, seen, its_holds = struct.unpack('<ddddd', all[i + 1])
      if now - seen >= dead or seen > now + dead then
        gone[#gone + 1] = all[i]
      else
        found[#found + 1] = {its, all[i], its_last, its_grown, seen, its_holds}
        holding = holding + its_holds
      end
    end
  end
  if record and wanted > 0 then found[#found + 1] = {rank, holder} end
  table.sort(found, function(one, other) return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2]) end)
  for place, each in ipairs(found) do
    if each[2] == holder then
      rank = place - 1
    elseif each[1] ~= place - 1 then
      redis.call('HSET', key, each[2], struct.pack('<ddddd', place - 1, each[3], each[4], each[5], each[6]))
    end
  end
  drop(gone)
  active, scanned = #found, now
  if not record and wanted > 0 then active = active + 1 end
elseif wanted > 0 and not record then
  active = active + 1
elseif wanted == 0 and record then
  active = math.max(0, active - 1)
end

local share = 0
if wanted > 0 then
  if rank < 0 then rank = active - 1 end
  active = math.max(active, rank + 1)
  share = math.floor(math.floor(places) / active)
  if rank < math.floor(places) % active then share = share + 1 end
  redis.call('HSET', key, holder, struct.pack('<ddddd', rank, sequence, grown, now, holds))
elseif record then
  redis.call('HDEL', key, holder)
end
redis.call('HSET', key, 'begun', text(begun), 'ends', text(ends), 'places', text(places), 'threshold', threshold,
  'active', active, 'holding', holding, 'scanned', text(scanned))
redis.call('PEXPIRE', key, math.ceil((math.max(0, ends - now) + 2 * dead) * 1000) + 1000)
return {text(begun), text(places), tostring(share), tostring(threshold), tostring(holding - holds)}

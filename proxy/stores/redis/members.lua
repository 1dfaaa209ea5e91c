-- The members of a fleet: the processes that share what is kept under one prefix, each with a rank.
--
-- Law: a member counts from its first report until it has been silent for "dead" seconds, or says that it leaves. Ranks
-- are 0, 1, ...; no two members that have reported since the last change have the same one.
--
-- The hash: made (the name of this making of the key), count (the number of members), scanned (when silent members were
-- last removed), oldest (the time since which every member had reported then), and a field for each member: rank,
-- sequence, joined, seen.
local key, member = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
local leaves = tonumber(ARGV[4]) > 0
local making, dead, forget = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', key, 'made', 'count', 'scanned', 'oldest', member)
local made, count, scanned = state[1] or making, tonumber(state[2]) or 0, tonumber(state[3]) or -1
local oldest, record = tonumber(state[4]) or now, state[5]
local function text(number) return string.format('%.17g', number) end

local rank, last, joined = count, 0, now
if record then
  local _
  rank, last, joined, _ = struct.unpack('<dddd', record)
  if sequence <= last then return {'late'} end
else
  count = count + 1
end

-- all members are looked at now and then, less often the more there are
if leaves or now - scanned >= math.max(0.1, count / 2500) or now < scanned then
  local all, found, gone = redis.call('HGETALL', key), {}, {}
  oldest = now
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'h:' and all[i] ~= member then
      local its, its_last, its_joined, seen = struct.unpack('<dddd', all[i + 1])
      if now - seen >= dead or seen > now + dead then
        gone[#gone + 1] = all[i]
      else
        found[#found + 1] = {its, all[i], its_last, its_joined, seen}
        oldest = math.min(oldest, seen)
      end
    end
  end
  if not leaves then found[#found + 1] = {rank, member} end
  table.sort(found, function(one, other) return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2]) end)
  for place, each in ipairs(found) do
    if each[2] == member then
      rank = place - 1
    elseif each[1] ~= place - 1 then
      redis.call('HSET', key, each[2], struct.pack('<dddd', place - 1, each[3], each[4], each[5]))
    end
  end
  for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
  count, scanned = #found, now
end

if leaves then
  redis.call('HDEL', key, member)
else
  redis.call('HSET', key, member, struct.pack('<dddd', rank, sequence, joined, now))
end
redis.call('HSET', key, 'made', made, 'count', count, 'scanned', text(scanned), 'oldest', text(oldest))
redis.call('PEXPIRE', key, forget)
return {made, tostring(count), tostring(rank), joined <= oldest and '1' or '0'}

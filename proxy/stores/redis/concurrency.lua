-- One limit on attempts under way (`concurrency: {max: N}`) over all processes of a fleet.
--
-- Law: the leases of all holders together are at most `most`, but for attempts that were under way before Redis knew of
-- them. A lease shrinks only by its holder's own message: what the holder says that it keeps, it may use while the
-- message is on its way. A message may come twice or late, or its reply may be lost: reports are absolute, and an
-- overtaken one is ignored.
--
-- Theory. A holder needs a place for each attempt under way and each waiting call, and may have more ready. If there are
-- not enough, each holder has a target: an equal part, and what others do not need (max-min fairness); the remainder goes to those
-- that have waited longest. If there are fewer places than holders, a holder that has had its place for `turn` seconds
-- goes to the end of the line. Whoever has more than its target is told so (published), and returns places as they
-- become free; they are given to those below their target, who are told as well.
--
-- The hash: made (the name of this making of the key), calm (until when nothing is granted, so that all holders can
-- report to a key that was lost), leased, scanned (when targets were computed), holders (their number), short (1 if there
-- are not enough places), and a field for each holder: lease, sequence, seen, used, need, target, line (since when it
-- needs places), got (since when it has one), version (counts what it is told).
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
local known_made = ARGV[3]
local used, waiting = tonumber(ARGV[4]), tonumber(ARGV[5])  -- the sender's attempts under way, and waiting calls
local keep, more = tonumber(ARGV[6]), tonumber(ARGV[7])  -- places it keeps; and would like to have ready beyond its need
local most = tonumber(ARGV[8])
local leaving = tonumber(ARGV[9]) > 0       -- the sender ends
local making, dead, forget = ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
local channel = ARGV[13]                    -- what the names of the holders' channels begin with
local pause = tonumber(ARGV[14])            -- seconds between the sender's reports if what it needs changes
local a_record, longest, turn, settling = 0.0001, math.max(0.2, pause / 2), math.max(0.5, pause), 2
local form = '<ddddddddd'

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', key, 'made', 'calm', 'leased', 'scanned', 'holders', 'short', holder)
local made, calm, leased = state[1], tonumber(state[2]), tonumber(state[3])
local scanned, holders, short = tonumber(state[4]), tonumber(state[5]), state[6] == '1'
local record = state[7]
local function text(number) return string.format('%.17g', number) end

if not made then
  made, calm, leased, scanned, holders, short, record = making, 0, 0, 0, 0, false, false
  if known_made ~= '' then calm = now + settling end
end

local its = {lease = 0, need = 0, target = math.huge, line = now, got = now, version = now}
if record then
  local last
  its.lease, last, its.seen, its.used, its.need, its.target, its.line, its.got, its.version = struct.unpack(form, record)
  if sequence <= last then return {'late'} end
else
  holders = holders + 1
end
local lease = its.lease
if leaving then used, waiting, keep = 0, 0, 0 end
-- A lease that Redis does not know (any more) is what its holder says.
its.lease = math.max(used, record and math.min(lease, keep) or keep)
leased = math.max(0, leased + its.lease - lease)
if its.need <= 0 then its.line = now end
its.used, its.need, its.sequence, its.seen = used, used + waiting, sequence, now

local function put(name, each)
  redis.call('HSET', key, name, struct.pack(form, each.lease, each.sequence, each.seen, each.used, each.need,
    each.target, each.line, each.got, each.version))
end

local function give(each, places)
  if each.lease <= 0 then each.got = now end
  each.lease, leased = each.lease + places, leased + places
end

local function tell(name, each)
  each.version = each.version + 1
  redis.call('PUBLISH', channel .. string.sub(name, 3),
    string.format('%d %d %.17g %s', each.lease, math.min(each.lease, each.target), each.version, key))
end

local function earlier(one, other)
  return one.line < other.line or (one.line == other.line and one.name < other.name)
end

-- Set every holder's target, and put the holders into the order in which they wait.
local function divide(found)
  local needs, sum = {}, 0
  for i, each in ipairs(found) do needs[i], sum = each.need, sum + math.max(each.need, each.lease) end
  short = sum > most
  table.sort(found, earlier)
  if not short then
    for _, each in ipairs(found) do each.target = math.huge end
    return
  end
  table.sort(needs)
  local level, left = 0, most
  for i, need in ipairs(needs) do
    level = math.floor(left / (#needs - i + 1))
    if need > level then break end
    left = left - need
  end
  local rest = most
  for _, each in ipairs(found) do rest = rest - math.min(each.need, level) end
  if level == 0 then  -- fewer places than holders: whoever had one for long enough goes to the end of the line
    for _, each in ipairs(found) do
      if each.lease > 0 and now - each.got >= turn then each.line = now end
    end
    table.sort(found, earlier)
  end
  for _, each in ipairs(found) do
    each.target = math.min(each.need, level)
    if each.need > level and rest > 0 then each.target, rest = level + 1, rest - 1 end
  end
end

local function scan()
  local all, found, gone = redis.call('HGETALL', key), {}, {}
  leased, holders = its.lease, 1
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'h:' and all[i] ~= holder then
      local each = {name = all[i]}
      each.lease, each.sequence, each.seen, each.used, each.need, each.target, each.line, each.got, each.version =
        struct.unpack(form, all[i + 1])
      if now - each.seen >= dead or each.seen > now + dead then
        gone[#gone + 1] = all[i]
      else
        leased, holders = leased + each.lease, holders + 1
        each.before, found[#found + 1] = each.target, each
      end
    end
  end
  for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
  its.name = holder
  found[#found + 1] = its
  divide(found)
  for _, each in ipairs(found) do
    local wanted = math.min(each.need, each.target) - each.lease
    if wanted > 0 and now >= calm and leased < most then
      give(each, math.min(wanted, most - leased))
      if each ~= its then
        tell(each.name, each)
        put(each.name, each)
      end
    elseif each ~= its and each.target ~= each.before then
      if each.lease > each.target and each.target < each.before then tell(each.name, each) end
      put(each.name, each)
    end
  end
  scanned = now
end

local wanted = its.need - its.lease
if short or wanted > most - leased or now < scanned then
  if now - scanned >= math.min(longest, holders * a_record) or now < scanned then scan() end
end
if not short and now >= calm then
  local free = most - leased
  if its.need > its.lease and free > 0 then give(its, math.min(its.need - its.lease, free)) end
  free = most - leased
  if more > 0 and free > 0 then
    -- other holders may need up to a fair part of what is free
    local spare = math.min(more, math.floor(free / (2 * holders)))
    if spare > 0 then give(its, spare) end
  end
end
its.version = its.version + 1
if leaving then
  redis.call('HDEL', key, holder)
  holders, leased = math.max(0, holders - 1), math.max(0, leased - its.lease)
else
  put(holder, its)
end
redis.call('HSET', key, 'made', made, 'calm', text(calm), 'leased', text(leased), 'scanned', text(scanned),
  'holders', holders, 'short', short and '1' or '0')
redis.call('PEXPIRE', key, math.ceil(forget))
return {made, text(its.lease), text(math.min(its.lease, its.target)), text(its.version), short and '1' or '0',
  text(holders)}

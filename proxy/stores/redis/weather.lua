-- The limit and the outage of one lane, for all processes of a fleet: one number of places, and one process that probes.
--
-- Law: a limit begins with the places that its first holder names, and each other holder adds its own once. An answer
-- adds the places that its holder says, a refusal takes a part away, once for all attempts that were sent before the
-- last cut. The end of an outage, or of a limit, is its end for all. A message may come twice or late: what a holder
-- has added is cumulative, and an overtaken message is ignored.
--
-- Theory. Each holder wants a place for each attempt that has one and for each call that it holds. If all want more than
-- there are, the places are divided equally, and what one does not want goes to the others; if there are fewer places
-- than holders, a holder that has had one for `turn` seconds goes to the end of the line. While there are enough, each
-- holder has some to spare. A holder that wanted places and is silent for `late` seconds wants none any more. Both are
-- longer in a large fleet, whose processes report less often. In an outage, the right to probe is lent to one holder
-- that holds calls, for `probing` seconds; it is renewed while it holds any.
--
-- The hash: made (the name of this making of the key), seen (when the last message came), most (the places, 0 for no
-- limit), threshold (up to which they double; -1: none), begun and cut (when the limit began, and was cut last), out
-- (since when there is an outage, 0 for none), prober, until (until when it may probe), probed (when a probe ended last),
-- scanned, count, wants and queued (of all holders, when they were counted last), level (the part of each), served (when
-- the upstream served an attempt last, 0 if it has not), and for each holder: sequence, seen, grown, joined (the
-- beginning of the limit to which it has added places), wanted, queued, part, line (since when it wants places), got
-- (since when it has one).
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
-- what happened here since the last message: a limit began or is over, an outage began or is over (1 or 0)
local limit_began, limit_over = tonumber(ARGV[4]) > 0, tonumber(ARGV[5]) > 0
local outage_began, outage_over = tonumber(ARGV[6]) > 0, tonumber(ARGV[7]) > 0
local own = tonumber(ARGV[8])               -- places that the sender adds to a limit that it has not yet added to
local cut, cut_age = tonumber(ARGV[9]), tonumber(ARGV[10])  -- what a refusal leaves, of an attempt sent so long ago
local grown = tonumber(ARGV[11])            -- places that answers to the sender have added, in all
local wanted, queued = tonumber(ARGV[12]), tonumber(ARGV[13])
local since_age = tonumber(ARGV[14])        -- how long ago the outage began, as the sender knows it
local probe_age = tonumber(ARGV[15])        -- how long ago the sender's last probe ended
local leaves = tonumber(ARGV[16]) > 0
local pause = tonumber(ARGV[17])            -- how often the sender reports while it wants places
local served_age = tonumber(ARGV[18])       -- how long ago the upstream served the sender's last attempt, 1e9: never
local making, dead = ARGV[19], tonumber(ARGV[20])
local probing, silent, a_record, longest = 1, 15, 0.0001, 0.2
local turn, late = math.max(0.5, pause), math.max(2, 3 * pause)
local form = '<ddddddddd'

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local names = {'made', 'seen', 'most', 'threshold', 'begun', 'cut', 'out', 'prober', 'until', 'probed', 'scanned',
  'count', 'wants', 'queued', 'level', 'served'}
local values, state = redis.call('HMGET', key, unpack(names)), {}
for i, name in ipairs(names) do state[name] = tonumber(values[i]) or 0 end
local made, prober = values[1] or making, values[8] or ''
local function text(number) return string.format('%.17g', number) end

if not values[1] and wanted == 0 and not limit_began and not outage_began then
  return {'', '0', '-1', '0', '0', '0', '-1', '0', '0', '-1'}
end

local its = {seen = now, grown = grown, joined = 0, part = 0, line = now, got = now, wanted = 0}
local record = redis.call('HGET', key, holder)
if record then
  local last, before, _
  last, _, before, its.joined, its.wanted, _, its.part, its.line, its.got = struct.unpack(form, record)
  if sequence <= last then return {'late'} end
  if state.most > 0 and its.joined == state.begun then state.most = state.most + math.max(0, grown - before) end
end
if its.wanted <= 0 then its.line = now end
its.wanted, its.queued, its.sequence = wanted, queued, sequence

if served_age < 1e9 then state.served = math.max(state.served, now - served_age) end

if now - state.seen > silent then state.most, state.out = 0, 0 end  -- no process knows what has become of it

local function begin(most, threshold)
  state.most, state.threshold, state.begun, state.cut = most, threshold, now, now
  its.joined = now
end

if outage_over and state.out > 0 then
  state.out, prober = 0, ''
  begin(1, -1)
elseif outage_began and state.out == 0 then
  state.out, state.probed, prober, state['until'] = now - since_age, now, holder, now + probing
end
if limit_over then
  state.most = 0
elseif limit_began and state.most == 0 then
  begin(math.max(1, own), math.max(1, own))
elseif state.most > 0 and its.joined ~= state.begun then
  its.joined = state.begun
  if state.threshold >= 0 and state.cut == state.begun then  -- attempts that were under way when the limit began
    state.most = state.most + own
    state.threshold = state.threshold + own
  end
elseif state.most > 0 and cut < 1 and now - cut_age > state.cut then
  state.most = math.max(1, state.most * cut)
  state.threshold, state.cut = state.most, now
end

if state.out > 0 then
  if prober == holder then state.probed = math.max(state.probed, now - probe_age) end
  if prober == holder and wanted <= 0 then state['until'] = 0 end
  if wanted > 0 and (prober == holder or now >= state['until'] or now + 10 * probing < state['until']) then
    prober, state['until'] = holder, now + probing
  end
end

-- Write the record of a holder as it was, but for what it wants now, and its part.
local function put(name, record, wants, queues, part, line)
  local order, seen, its_grown, joined, _, _, before, _, got = struct.unpack(form, record)
  if before <= 0 and part > 0 then got = now end
  redis.call('HSET', key, name, struct.pack(form, order, seen, its_grown, joined, wants, queues, part, line, got))
end

-- The largest equal part, if holders that want fewer places leave the rest to the others. "tally": how many of the
-- "left" holders want so many places.
local function equal_part(tally, left, places)
  local level, needs = 0, {}
  for need in pairs(tally) do needs[#needs + 1] = need end
  table.sort(needs)
  for _, need in ipairs(needs) do
    level = math.floor(places / left)
    if need > level then break end
    local alike = tally[need]
    level = math.floor((places - need * (alike - 1)) / (left - alike + 1))
    places, left = places - need * alike, left - alike
  end
  return level
end

-- The holders, by their places in the lists, that get one of the "rest" places beyond the level, since they have wanted
-- one for longest.
local function first_in_line(names, lines, wants, level, rest)
  local waiting, chosen, ties = {}, {}, {}
  for i, want in ipairs(wants) do
    if want > level then waiting[#waiting + 1] = lines[i] end
  end
  table.sort(waiting)
  local last = waiting[math.min(rest, #waiting)]
  if rest <= 0 or not last then return chosen end
  for i, want in ipairs(wants) do
    if want > level and lines[i] < last then
      chosen[i], rest = true, rest - 1
    elseif want > level and lines[i] == last then
      ties[#ties + 1] = i
    end
  end
  table.sort(ties, function(one, other) return names[one] < names[other] end)
  for i = 1, math.min(rest, #ties) do chosen[ties[i]] = true end
  return chosen
end

-- Count all holders, and set the part of each. The lists have the sender first.
local function count()
  local all, gone, tally = redis.call('HGETALL', key), {}, {[wanted] = 1}
  local names, wants, queues, parts, lines, gots = {holder}, {wanted}, {queued}, {its.part}, {its.line}, {its.got}
  local records, found = {}, 1
  state.wants, state.queued, state.scanned = wanted, queued, now
  for i = 1, #all, 2 do
    local name = all[i]
    if string.sub(name, 1, 2) == 'h:' and name ~= holder then
      local _, seen, _, _, want, queue, part, line, got = struct.unpack(form, all[i + 1])
      if now - seen >= dead or seen > now + dead then
        gone[#gone + 1] = name
      else
        if now - seen >= late then want, queue = 0, 0 end
        found = found + 1
        names[found], records[found], wants[found], queues[found] = name, all[i + 1], want, queue
        parts[found], lines[found], gots[found] = part, line, got
        state.wants, state.queued, tally[want] = state.wants + want, state.queued + queue, (tally[want] or 0) + 1
      end
    end
  end
  for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
  local level, rest = equal_part(tally, found, math.floor(state.most)), math.floor(state.most)
  for i = 1, found do
    if level == 0 and parts[i] > 0 and now - gots[i] >= turn then lines[i] = now end
    rest = rest - math.min(wants[i], level)
  end
  local chosen = first_in_line(names, lines, wants, level, rest)
  for i = 2, found do
    local part = math.min(wants[i], level) + (chosen[i] and 1 or 0)
    if part ~= parts[i] then put(names[i], records[i], wants[i], queues[i], part, lines[i]) end
  end
  local part = math.min(wanted, level) + (chosen[1] and 1 or 0)
  if its.part <= 0 and part > 0 then its.got = now end
  its.part, its.line = part, lines[1]
  state.count, state.level = found, level
end

if now - state.scanned >= math.min(math.max(longest, pause / 2), state.count * a_record) or now < state.scanned then
  count()
elseif state.most > 0 then
  its.part = math.min(wanted, math.max(state.level, its.part))
end
-- what nobody wants is there for calls that come next
local share = its.part
if state.most > state.wants then
  share = math.max(share, wanted) + math.ceil((state.most - state.wants) / math.max(1, state.count))
end
if leaves then
  redis.call('HDEL', key, holder)
  if prober == holder then prober = '' end
else
  redis.call('HSET', key, holder, struct.pack(form, its.sequence, its.seen, its.grown, its.joined, its.wanted,
    its.queued, its.part, its.line, its.got))
end
redis.call('HSET', key, 'made', made, 'seen', text(now), 'most', text(state.most), 'threshold', text(state.threshold),
  'begun', text(state.begun), 'cut', text(state.cut), 'out', text(state.out), 'prober', prober,
  'until', text(state['until']), 'probed', text(state.probed), 'scanned', text(state.scanned), 'count', state.count,
  'wants', state.wants, 'queued', state.queued, 'level', state.level, 'served', text(state.served))
redis.call('PEXPIRE', key, math.ceil(4 * silent * 1000))
local may_probe = prober == holder and '1' or '0'
return {made, text(state.most), text(state.threshold), text(share), text(math.max(0, state.queued - queued)),
  text(math.max(0, state.wants - wanted)), state.out > 0 and text(now - state.out) or '-1', text(now - state.probed),
  may_probe, state.served > 0 and text(now - state.served) or '-1'}

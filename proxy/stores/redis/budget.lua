-- One budget: the calls and retries of a fleet in a sliding window, and its retries of the last second.
--
-- Law: counts are merged so that load is never underestimated. Events are counted in slices of a hundredth of the
-- window (a twentieth of the second); a slice of calls expires when its oldest event may have left the window, one of
-- retries when its newest may have. A holder reports sums since its beginning, and an overtaken message is ignored.
--
-- The hash: made (the name of this making of the key), born (when it was made), scanned (when silent holders were last
-- removed); for each of c (calls), r (retries) and s (retries of the last second) its total (tc, ...), its oldest slice
-- that may still exist (oc, ...), and its slices (c:123); and a field for each holder.
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
local known_made = ARGV[3]
local calls, retries = tonumber(ARGV[4]), tonumber(ARGV[5])
local calls_before, retries_before = tonumber(ARGV[6]), tonumber(ARGV[7])
local age = tonumber(ARGV[8])               -- seconds since the first call that was not yet reported
local known_calls, known_retries, known_second = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local window, percent, minimum = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local making, dead, forget = ARGV[15], tonumber(ARGV[16]), tonumber(ARGV[17])
local slices, young = 100, 10
local widths = {c = window / slices, r = window / slices, s = 1 / 20}
local spans = {c = window, r = window, s = 1}

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', key, 'made', 'born', 'scanned', holder, 'tc', 'oc', 'tr', 'or', 'ts', 'os')
local made, born, scanned, record = state[1], tonumber(state[2]), tonumber(state[3]), state[4]
local total = {c = tonumber(state[5]) or 0, r = tonumber(state[7]) or 0, s = tonumber(state[9]) or 0}
local oldest = {c = tonumber(state[6]), r = tonumber(state[8]), s = tonumber(state[10])}
local written, gone = {}, {}

local function slice(what, seconds_ago) return math.floor((now - seconds_ago) / widths[what]) end

local function field(what, index) return what .. ':' .. string.format('%.0f', index) end

local function count(what, index, events)
  local name = field(what, index)
  local before = written[name] or tonumber(redis.call('HGET', key, name)) or 0
  written[name] = before + events
  total[what] = total[what] + events
  oldest[what] = math.min(oldest[what] or index, index)
end

-- the first slice that counts: all of its calls are within the window, or some of its retries may be within it
local function first(what)
  local edge = math.floor((now - spans[what]) / widths[what])
  if what == 'c' then return edge + 1 end
  return edge
end

-- remove the slices that have left their window
for what, _ in pairs(total) do
  local edge = first(what)
  if oldest[what] and oldest[what] < edge then
    local names = {}
    for index = oldest[what], math.min(edge - 1, oldest[what] + slices + 2) do names[#names + 1] = field(what, index) end
    for place, events in ipairs(redis.call('HMGET', key, unpack(names))) do
      if events then
        total[what] = total[what] - tonumber(events)
        gone[#gone + 1] = names[place]
      end
    end
    oldest[what] = edge
  end
end

local function level()
  return math.max(0, percent * total.c / 100 - total.r, minimum - total.s)
end

if not made then
  made, born, scanned, record = making, now, now, false
  if known_calls and known_calls > 0 then count('c', slice('c', window / 2), known_calls) end
  if known_retries and known_retries > 0 then count('r', slice('r', 0), known_retries) end
  if known_second and known_second > 0 then count('s', slice('s', 0), known_second) end
end

local last = 0
if record then
  last, calls_before, retries_before = struct.unpack('<ddd', record)
  if sequence <= last then return {'late'} end
elseif known_made ~= made and known_made ~= '' then
  -- the sender knows another making of the key; see tokens.lua
  calls_before, retries_before = calls, retries
  if known_calls and now - born < young then
    local known = math.max(0, percent * known_calls / 100 - known_retries, minimum - known_second)
    local share = math.ceil(percent * total.c / 100 - total.r - known)
    if share > 0 then count('r', slice('r', 0), share) end
    if minimum - total.s > known then count('s', slice('s', 0), math.ceil(minimum - total.s - known)) end
  end
end

if calls > calls_before then
  count('c', math.max(first('c'), slice('c', math.max(0, age))), calls - calls_before)
end
local more = retries - retries_before
for _, what in ipairs({'r', 's'}) do
  if more > 0 then
    count(what, slice(what, 0), more)
  else
    -- take back retries that did not happen, from the newest slice on
    local left = math.min(-more, total[what])
    local index = slice(what, 0)
    while left > 0 and oldest[what] and index >= oldest[what] do
      local name = field(what, index)
      local there = written[name] or tonumber(redis.call('HGET', key, name)) or 0
      local less = math.min(there, left)
      if less > 0 then
        written[name] = there - less
        total[what] = total[what] - less
        left = left - less
      end
      index = index - 1
    end
  end
end

if now - scanned >= dead or now < scanned then
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'h:' and all[i] ~= holder then
      local _, _, _, seen = struct.unpack('<dddd', all[i + 1])
      if now - seen >= dead or seen > now + dead then gone[#gone + 1] = all[i] end
    end
  end
  scanned = now
end

local function text(number) return string.format('%.17g', number) end
local fields = {'made', made, 'born', text(born), 'scanned', text(scanned),
  holder, struct.pack('<dddd', sequence, calls, retries, now)}
for what, events in pairs(total) do
  fields[#fields + 1] = 't' .. what
  fields[#fields + 1] = text(events)
  if oldest[what] then
    fields[#fields + 1] = 'o' .. what
    fields[#fields + 1] = string.format('%.0f', oldest[what])
  end
end
for name, events in pairs(written) do
  fields[#fields + 1] = name
  fields[#fields + 1] = text(events)
end
redis.call('HSET', key, unpack(fields))
redis.call('PEXPIRE', key, forget)
for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
return {made, text(total.c), text(total.r), text(total.s)}

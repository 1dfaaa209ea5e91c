-- One rate of a fleet: a token bucket whose refill is given to its holders in parts, and whose tokens are leased.
--
-- Law: over any time t the holders get at most rate * t + capacity tokens. The parts together are at most the rate; what
-- is in the pool, what the holders have, and the room that their parts may fill are together at most the capacity, but
-- for tokens that are on their way to waiting calls.
--
-- Theory. A holder's part is a number of tokens a second. The holder adds them to its tokens by itself, up to `most`,
-- until it reports again; while its report is under way it adds none, so that the reply may say any part. Each holder
-- says how many tokens a second it could use (`demand`). If all demands are more than the rate, each gets an equal part,
-- and what others do not need (max-min fairness, at the level `fair`, which is computed when all records are read). A
-- holder with more than that is called (published), reports, and gets less; one with less asks again. A twentieth of
-- the rate is given to nobody, so that holders without a part find tokens at once.
--
-- Where there is less than a token of the capacity for each holder, there are no parts: tokens that calls wait for are
-- given as they come, or reserved of what will be refilled next ("owed"), and the sender is told when each is there.
-- They fill no room: a call takes them as they come. Had they room until that is reported, the refill of that time would
-- be lost whenever the capacity is that of a few calls.
--
-- A message may come twice or late, or its reply may be lost: a holder's report is cumulative ("spent", "changed") or
-- absolute ("keep"), and an overtaken one is ignored.
--
-- The hash: made (the name of this making of the key), born (when it was made), pool, owed, promised (the refill by which
-- the owed tokens come), leased (the tokens of all holders as they last reported), rooms, parts (the sums of these), at
-- (when the pool was refilled last), by (the same; another value says that an earlier release was here since), mixed
-- (when that was noticed last), lost (until when holders of an earlier making may report), large (until when no part is
-- given, for a price that is more than half the capacity), fair, scanned (when all records were read), holders (their
-- number), and a field for each holder: lease, sequence, spent, changed, seen, part, demand, most (the tokens that it may
-- come to have, less those on their way to waiting calls: the room that it fills).
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
local known_made = ARGV[3]                  -- the making that the sender knows, '' for none
local spent, changed = tonumber(ARGV[4]), tonumber(ARGV[5])
local spent_before, changed_before = tonumber(ARGV[6]), tonumber(ARGV[7])  -- as of the last reply to the sender
local keep = tonumber(ARGV[8])              -- tokens that the sender keeps; the rest is returned
local waiting = tonumber(ARGV[9])           -- tokens that calls wait for, beyond those that the sender has
local first_call = tonumber(ARGV[10])       -- what the first of these calls needs in all
local more = tonumber(ARGV[11])             -- tokens that the sender would like to keep ready
local demand = tonumber(ARGV[12])           -- tokens a second that the sender could use
local has = tonumber(ARGV[13])              -- the part that it has
local crowd = tonumber(ARGV[14])            -- the processes of the fleet, as far as the sender knows
local known_level = tonumber(ARGV[15])      -- the level that the sender knows, or nil
local start, capacity, rate = tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18])
local looks = tonumber(ARGV[19]) > 0        -- the sender only reads the level
local coming = tonumber(ARGV[20])           -- those of `keep` that are still to be refilled
local next_calls = tonumber(ARGV[21])       -- those of `waiting` that may be reserved: whole calls' tokens
local channel = ARGV[22]                    -- what the names of the holders' channels begin with
local making = ARGV[23]                     -- the name of a new making
local dead = tonumber(ARGV[24])             -- seconds of silence after which a holder is forgotten
local forget = tonumber(ARGV[25])           -- milliseconds that an unused key is kept
local scan_every, young = 0.5, 10
local least = 0.5                           -- the smallest part, so that it brings a token between two reports
local unparted, unparted_in_debt = 0.05, 0.15
local all_of_it = 1e300                     -- the level `fair` while demands are less than the rate
local called = 20                           -- the most holders that are called at one time
local form, former = '<dddddddd', '<ddddd'

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', key, 'made', 'born', 'pool', 'owed', 'leased', 'at', 'scanned', 'holders', holder,
  'by', 'rooms', 'parts', 'promised', 'mixed', 'lost', 'large', 'fair')
local made, born, leased = state[1], tonumber(state[2]), tonumber(state[5])
local pool, owed = tonumber(state[3]) or 0, tonumber(state[4]) or 0
local at, scanned, holders, record = tonumber(state[6]), tonumber(state[7]), tonumber(state[8]), state[9]
local by, rooms, parts = tonumber(state[10]), tonumber(state[11]) or 0, tonumber(state[12]) or 0
local promised, mixed = tonumber(state[13]) or 0, tonumber(state[14]) or -1
local lost, large, fair = tonumber(state[15]) or 0, tonumber(state[16]) or 0, tonumber(state[17]) or all_of_it
local gone, calls = {}, {}
local function text(number) return string.format('%.17g', number) end
local function subtract(tokens) pool = math.max(0, pool - tokens) end
local function charge(tokens)  -- what the pool lacks is owed
  owed, pool = owed + math.max(0, tokens - pool), math.max(0, pool - tokens)
end
local function gain(tokens)  -- what is owed comes first
  owed, pool = math.max(0, owed - tokens), pool + math.max(0, tokens - owed)
end
local function fit(filled) pool = math.max(0, math.min(pool, capacity - filled)) end  -- the room filled by holders
local function read(packed)
  local each = {}
  if #packed >= 64 then
    each.lease, each.last, each.spent, each.changed, each.seen, each.part, each.demand, each.most =
      struct.unpack(form, packed)
  else
    each.lease, each.last, each.spent, each.changed, each.seen = struct.unpack(former, packed)
    each.part, each.demand, each.most = 0, 0, each.lease
  end
  return each
end

if not made then
  made, born, at, by, scanned, holders, leased = making, now, now, now, now, 0, 0
  pool, owed, rooms, parts, record = math.min(capacity, known_level or start), 0, 0, 0, false
  if known_made ~= '' then lost = now + dead / 2 end
elseif at ~= by then
  -- A release that knows no parts has refilled the pool by the whole rate. While it is here, there are none.
  if by and at > by then charge((at - by) * parts) end
  mixed = now
end

-- refill the pool by time; a clock that was set back adds nothing once, and refills from then on
local free = math.max(0, rate - parts)
if now > at then gain((now - at) * free) end
fit(leased + rooms)

-- what the sender may have now: its tokens, and its part since it reported, less what it has spent. (Of a rate, more may
-- be spent than is there, a price above the capacity: later refills pay for it.)
local its = {lease = 0, last = 0, seen = now, part = 0, demand = 0, most = 0}
if record then
  its = read(record)
  if sequence <= its.last then return {'late'} end
  spent_before, changed_before = its.spent, its.changed
  leased, rooms, parts = leased - its.lease, rooms - (its.most - its.lease), parts - its.part
else
  if not looks then holders = holders + 1 end
  if known_made ~= made and known_level then
    -- The sender knows another making of this key, or went on without Redis: its report does not apply to this making,
    -- but for its part. While the key is young, the holder that made it may have known less: the lowest level that any
    -- holder knows is taken, and no part becomes larger before all have said what they have.
    if now - born < young then
      subtract(math.max(0, pool - owed + leased - known_level))
      charge(math.max(0, math.min(spent - spent_before, has * (now - born))))
      if known_made ~= '' then lost = math.max(lost, born + dead / 2) end
    end
    spent_before, changed_before = spent, changed
  end
end
local own = its.lease + its.part * math.max(0, now - its.seen) - (spent - spent_before)
if own < 0 then charge(-own) own = 0 end

-- read all records now and then, and when the sender gets less than it could use; the sums are computed again, so that
-- no rounding errors add up. What a silent holder had is not given to others: it may have spent it, and time refills it.
local pause = math.min(math.max(scan_every, holders / 5000), dead / 2)
if demand > 1.1 * math.max(its.part, its.demand) then pause = math.min(pause, math.max(0.1, holders / 2500)) end
local shared = rate * (1 - (owed > 0 and unparted_in_debt or holders > 1 and unparted or 0))
if now - scanned >= pause or now < scanned then
  local all = redis.call('HGETALL', key)
  local others, total = {}, demand
  leased, rooms, parts = 0, 0, 0
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'h:' and all[i] ~= holder then
      local each = read(all[i + 1])
      if now - each.seen >= dead or each.seen > now + dead then
        gone[#gone + 1] = all[i]
      else
        each.name = all[i]
        others[#others + 1] = each
        leased, rooms, parts = leased + each.lease, rooms + each.most - each.lease, parts + each.part
        total = total + each.demand
      end
    end
  end
  holders, scanned, fair = #others + (looks and 0 or 1), now, all_of_it
  if total > shared then
    local known
    fair = shared / (#others + 1)
    repeat
      known = fair
      local left, many = shared, 0
      if demand > known then many = 1 else left = left - demand end
      for _, each in ipairs(others) do
        if each.demand > known then many = many + 1 else left = left - each.demand end
      end
      if many > 0 then fair = left / many end
    until fair <= known * 1.001 or many == 0
    if math.min(demand, fair) > 1.05 * (shared - parts) then
      local first = tonumber(time[2]) % math.max(1, #others)
      for i = 1, #others do
        local each = others[(first + i) % #others + 1]
        if each.part > 1.05 * math.min(each.demand, fair) + 0.01 and #calls < called then
          calls[#calls + 1] = string.sub(each.name, 3)
        end
      end
    end
  end
end
fit(leased + rooms)

-- return what is not kept to the pool; what it keeps and has come fills room
local lease = math.min(keep, own)
local most = math.max(0, lease - coming)
gain(own - lease)
fit(leased + rooms + most)

-- apply what was earned, or was spent while Redis was out; after an outage the sender's part has just come into the pool
local change = changed - changed_before
if change > 0 then
  pool = pool + math.min(change, math.max(0, capacity - pool - leased - rooms - most))
else
  subtract(-change)
end

-- the sender's part
holders = math.max(1, holders)
local room_each = capacity / (2 * math.max(holders, crowd))
if waiting > 0 and first_call > capacity / 2 then large = now + dead end
local parted = room_each >= 1 and now - mixed >= dead and now >= large and first_call <= room_each
local target, part = math.min(demand, fair), 0
if parted and demand > 0 then
  part = math.min(target, shared - parts)
  if owed > 0 then part = math.min(part, math.max(its.part, rate - promised - parts)) end
  if now < lost then part = math.min(part, math.max(its.part, has)) end
  if part < least then part = 0 end
  if target < least then target = 0 end
end
free = math.max(0, rate - parts - part)

-- grant the tokens that calls wait for: those that are there, then, without a part, those that come next, for the first
-- call at least: two processes that each have a portion of what their first call needs would wait for each other
local reserved, first = 0, 0
if waiting > 0 then
  local grant = math.min(waiting, math.floor(pool + 1e-9))
  pool, lease = math.max(0, pool - grant), lease + grant
  most = most + math.max(0, grant - next_calls)
  if part <= 0 and free > 0 and capacity >= 1 and now - mixed >= dead then
    reserved = math.max(0, math.ceil(next_calls - grant))
    if reserved > 0 then
      first, promised = (1 - pool + owed) / free, free
      charge(reserved)
      lease = lease + reserved
    end
  end
end

-- and of `more` no more than a fair share of the rest, in whole tokens
local spare = math.floor(math.min(more, pool / (2 * holders)) + 1e-9)
if spare > 0 then pool, lease, most = pool - spare, lease + spare, most + spare end

-- the room for what the part brings
if part > 0 then
  local room = math.max(most, math.min(room_each, capacity - pool - leased - rooms))
  if room < 1 then part = 0 else most = room end
end
leased, rooms, parts = leased + lease, rooms + most - lease, parts + part

local short = '0'
if parted and target > 1.05 * part then short = '2' elseif demand > 1.05 * target then short = '1' end
local reply = {made, text(lease), text(pool - owed), text(leased), tostring(holders), tostring(reserved), text(first), text(free),
  text(part), text(most), short}
if looks then return reply end
redis.call('HSET', key, 'made', made, 'born', text(born), 'pool', text(pool), 'owed', text(owed),
  'promised', text(promised), 'leased', text(leased), 'rooms', text(rooms), 'parts', text(parts), 'at', text(now),
  'by', text(now), 'mixed', text(mixed), 'lost', text(lost), 'large', text(large), 'fair', text(fair),
  'scanned', text(scanned), 'holders', holders,
  holder, struct.pack(form, lease, sequence, spent, changed, now, part, demand, most))
redis.call('PEXPIRE', key, forget)
for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
for _, each in ipairs(calls) do redis.call('PUBLISH', channel .. each, 'part ' .. key) end
return reply

-- One bucket that is a level: a quota or a rate, whose tokens are leased, or a throttle, which is only changed.
--
-- Law: pool - owed + leased is the bucket's level, and leased the sum of what the holders have. The level never leaves
-- [0, capacity], and nothing is granted that is not in the pool, except a rate's tokens that calls wait for: those are
-- reserved of what will be refilled ("owed"), and the sender is told when each is there. A price is granted whole or not
-- at all. A message may come twice or late, or its reply may be lost: a holder's report is cumulative ("spent",
-- "changed") or absolute ("keep"), and an overtaken one is ignored.
--
-- The hash: made (the name of this making of the key), born (when it was made), pool, owed, leased, at (when the pool
-- was refilled last), scanned (when silent holders were last removed), holders (their number), and a field for each
-- holder: lease, sequence, spent, changed, seen. Everything of a bucket is in one key, so in one slot of a cluster.
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
local known_made = ARGV[3]                  -- the making that the sender knows, '' for none
local spent, changed = tonumber(ARGV[4]), tonumber(ARGV[5])
local spent_before, changed_before = tonumber(ARGV[6]), tonumber(ARGV[7])  -- as of the last reply to the sender
local keep = tonumber(ARGV[8])              -- tokens of the lease that the sender keeps; the rest is returned
local prices = ARGV[9]                      -- the prices that calls are waiting for, in order, with spaces between
local waiting = tonumber(ARGV[10])          -- tokens of a rate that calls wait for, beyond those of the lease
local next_needs = tonumber(ARGV[11])       -- those of them that the first call needs
local more = tonumber(ARGV[12])             -- tokens that the sender would like to keep ready
local unit = tonumber(ARGV[13])             -- the price in multiples of which tokens are kept ready
local known_level = tonumber(ARGV[14])      -- the level that the sender knows, or nil
local start, capacity, rate = tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17])
local paces = tonumber(ARGV[18]) > 0        -- the bucket is a rate
local looks = tonumber(ARGV[19]) > 0        -- the sender only reads the level
local making = ARGV[20]                     -- the name of a new making
local dead = tonumber(ARGV[21])             -- seconds of silence after which a lease is taken back
local forget = tonumber(ARGV[22])           -- milliseconds that an unused key is kept
local scan_every, young = 0.5, 10
local ahead = 0.1                           -- seconds of refill that are reserved at one time, for all holders

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', key, 'made', 'born', 'pool', 'leased', 'at', 'scanned', 'holders', holder, 'owed')
local made, born, pool, leased = state[1], tonumber(state[2]), tonumber(state[3]), tonumber(state[4])
local at, scanned, holders = tonumber(state[5]), tonumber(state[6]), tonumber(state[7])
local record = state[8]
-- what is in the pool, less what is reserved of its refill: tokens in the pool and reserved ones exclude each other
local net = (pool or 0) - (tonumber(state[9]) or 0)
local gone = {}

if not made then
  made, born, at, scanned, holders, leased = making, now, now, now, 0, 0
  net = math.min(capacity, known_level or start)
  record = false
end
local function subtract(tokens) if net > 0 then net = math.max(0, net - tokens) end end

-- refill the pool by time; a clock that was set back adds nothing once, and refills from then on
if now > at then net = math.min(capacity - leased, net + (now - at) * rate) end

-- take back the leases of silent holders; the sum is computed again, so that no rounding errors add up. What a silent
-- holder had of a rate is not given to others: it may have spent it, and time refills it.
if now - scanned >= math.min(math.max(scan_every, holders / 5000), dead / 2) or now < scanned then
  local all = redis.call('HGETALL', key)
  local alive = 0
  holders = 0
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'h:' then
      local lease, _, _, _, seen = struct.unpack('<ddddd', all[i + 1])
      if all[i] ~= holder and (now - seen >= dead or seen > now + dead) then
        gone[#gone + 1] = all[i]
        if not paces then net = math.min(capacity, net + lease) end
      else
        alive = alive + lease
        holders = holders + 1
      end
    end
  end
  leased = alive
  net = math.min(net, capacity - leased)
  scanned = now
end

local lease, last = 0, 0
if record then
  lease, last, spent_before, changed_before = struct.unpack('<dddd', record)
  if sequence <= last then return {'late'} end
else
  if not looks then holders = holders + 1 end
  if known_made ~= made and known_level then
    -- The sender knows another making of this key, or went on without Redis: its report does not apply to this making.
    -- While the key is young, the holder that made it may have known less: the lowest level that any holder knows is
    -- taken.
    spent_before, changed_before = spent, changed
    if now - born < young then subtract(math.max(0, net + leased - known_level)) end
  end
end

-- subtract what was spent from the lease; from the pool if the lease was taken back meanwhile. Of a rate, more may be
-- spent than is there (a price above the capacity): later refills pay for it.
local paid = spent - spent_before
local from_lease = math.min(paid, lease)
lease, leased = lease - from_lease, leased - from_lease
if paces then net = net - (paid - from_lease) else subtract(paid - from_lease) end

-- apply what was earned, or was spent while Redis was out
local change = changed - changed_before
if change > 0 then
  net = net + math.min(change, math.max(0, capacity - net - leased))
else
  subtract(-change)
end

-- return what is not kept to the pool
local kept = math.min(keep, lease)
net, leased, lease = net + lease - kept, leased - lease + kept, kept

-- grant the prices that the lease and the pool can pay, each whole (1e-9 allows for the rounding of refills)
holders = math.max(1, holders)
local can_pay, needed = lease + math.max(0, net) + 1e-9, 0
for price in string.gmatch(prices, '%S+') do
  price = tonumber(price)
  if price <= can_pay then
    can_pay, needed = can_pay - price, needed + price
  end
end
local grant = math.min(math.max(0, needed - lease), math.max(0, net))
net, leased, lease = net - grant, leased + grant, lease + grant

-- grant the tokens of a rate that calls wait for: those that are there, then those that come next, for the first call
-- at least: two processes that each have a part of what their first call needs would wait for each other
local reserved, first = 0, 0
if waiting > 0 then
  grant = math.min(waiting, math.floor(math.max(0, net) + 1e-9))
  net, leased, lease = net - grant, leased + grant, lease + grant
  reserved = math.ceil(math.min(waiting - grant, math.max(next_needs - grant, math.floor(ahead * rate / holders) - kept)))
  if reserved < 1 or rate <= 0 or capacity < 1 then reserved = 0 end
  first = reserved > 0 and (1 - net) / rate or 0
  net, leased, lease = net - reserved, leased + reserved, lease + reserved
end

-- and of `more` no more than a fair share of the rest, in whole units
local spare = math.min(more, math.max(0, net - needed) / (2 * holders))
if unit > 0 then
  grant = math.max(0, math.floor(spare / unit + 1e-9) * unit)
  net, leased, lease = net - grant, leased + grant, lease + grant
end

local function text(number) return string.format('%.17g', number) end
local reply = {made, text(lease), text(net), text(leased), tostring(holders), tostring(reserved), text(first)}
if looks then return reply end
redis.call('HSET', key, 'made', made, 'born', text(born), 'pool', text(math.max(0, net)), 'leased', text(leased),
  'at', text(now), 'scanned', text(scanned), 'holders', holders, 'owed', text(math.max(0, -net)),
  holder, struct.pack('<ddddd', lease, sequence, spent, changed, now))
redis.call('PEXPIRE', key, forget)
for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
return reply

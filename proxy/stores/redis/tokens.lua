-- One bucket that is a level: a quota, whose tokens are leased, or a throttle, which is only changed. (Rates: rate.lua.)
--
-- Law: pool + leased is the bucket's level, and leased the sum of what the holders have. The level never leaves
-- [0, capacity], and nothing is granted that is not in the pool. A price is granted whole or not at all. A message may
-- come twice or late, or its reply may be lost: a holder's report is cumulative ("spent", "changed") or absolute
-- ("keep"), and an overtaken one is ignored.
--
-- The hash: made (the name of this making of the key), born (when it was made), pool, leased, at (when the pool was
-- refilled last), scanned (when silent holders were last removed), holders (their number), and a field for each holder:
-- lease, sequence, spent, changed, seen. Everything of a bucket is in one key, so in one slot of a cluster.
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
local known_made = ARGV[3]                  -- the making that the sender knows, '' for none
local spent, changed = tonumber(ARGV[4]), tonumber(ARGV[5])
local spent_before, changed_before = tonumber(ARGV[6]), tonumber(ARGV[7])  -- as of the last reply to the sender
local keep = tonumber(ARGV[8])              -- tokens of the lease that the sender keeps; the rest is returned
local prices = ARGV[9]                      -- the prices that calls are waiting for, in order, with spaces between
local more = tonumber(ARGV[10])             -- tokens that the sender would like to keep ready
local unit = tonumber(ARGV[11])             -- the price in multiples of which tokens are kept ready
local known_level = tonumber(ARGV[12])      -- the level that the sender knows, or nil
local start, capacity, rate = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local looks = tonumber(ARGV[16]) > 0        -- the sender only reads the level
local making = ARGV[17]                     -- the name of a new making
local dead = tonumber(ARGV[18])             -- seconds of silence after which a lease is taken back
local forget = tonumber(ARGV[19])           -- milliseconds that an unused key is kept
local scan_every, young = 0.5, 10

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', key, 'made', 'born', 'pool', 'leased', 'at', 'scanned', 'holders', holder)
local made, born, pool, leased = state[1], tonumber(state[2]), tonumber(state[3]), tonumber(state[4])
local at, scanned, holders = tonumber(state[5]), tonumber(state[6]), tonumber(state[7])
local record = state[8]
local gone = {}

if not made then
  made, born, at, scanned, holders, leased = making, now, now, now, 0, 0
  pool = math.min(capacity, known_level or start)
  record = false
end
local function subtract(tokens) pool = math.max(0, pool - tokens) end

-- refill the pool by time; a clock that was set back adds nothing once, and refills from then on
if now > at then pool = math.min(capacity - leased, pool + (now - at) * rate) end

-- take back the leases of silent holders; the sum is computed again, so that no rounding errors add up
if now - scanned >= math.min(math.max(scan_every, holders / 5000), dead / 2) or now < scanned then
  local all = redis.call('HGETALL', key)
  local alive = 0
  holders = 0
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'h:' then
      local lease, _, _, _, seen = struct.unpack('<ddddd', all[i + 1])
      if all[i] ~= holder and (now - seen >= dead or seen > now + dead) then
        gone[#gone + 1] = all[i]
        pool = math.min(capacity, pool + lease)
      else
        alive = alive + lease
        holders = holders + 1
      end
    end
  end
  leased = alive
  pool = math.min(pool, capacity - leased)
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
    if now - born < young then subtract(math.max(0, pool + leased - known_level)) end
  end
end

-- subtract what was spent from the lease; from the pool if the lease was taken back meanwhile
local paid = spent - spent_before
local from_lease = math.min(paid, lease)
lease, leased = lease - from_lease, leased - from_lease
subtract(paid - from_lease)

-- apply what was earned, or was spent while Redis was out
local change = changed - changed_before
if change > 0 then
  pool = pool + math.min(change, math.max(0, capacity - pool - leased))
else
  subtract(-change)
end

-- return what is not kept to the pool
local kept = math.min(keep, lease)
pool, leased, lease = pool + lease - kept, leased - lease + kept, kept

-- grant the prices that the lease and the pool can pay, each whole (1e-9 allows for the rounding of refills)
holders = math.max(1, holders)
local can_pay, needed = lease + math.max(0, pool) + 1e-9, 0
for price in string.gmatch(prices, '%S+') do
  price = tonumber(price)
  if price <= can_pay then
    can_pay, needed = can_pay - price, needed + price
  end
end
local grant = math.min(math.max(0, needed - lease), math.max(0, pool))
pool, leased, lease = pool - grant, leased + grant, lease + grant

-- and of `more` no more than a fair share of the rest, in whole units
local spare = math.min(more, math.max(0, pool - needed) / (2 * holders))
if unit > 0 then
  grant = math.max(0, math.floor(spare / unit + 1e-9) * unit)
  pool, leased, lease = pool - grant, leased + grant, lease + grant
end

local function text(number) return string.format('%.17g', number) end
local reply = {made, text(lease), text(pool), text(leased), tostring(holders)}
if looks then return reply end
redis.call('HSET', key, 'made', made, 'born', text(born), 'pool', text(pool), 'leased', text(leased),
  'at', text(now), 'scanned', text(scanned), 'holders', holders,
  holder, struct.pack('<ddddd', lease, sequence, spent, changed, now))
redis.call('PEXPIRE', key, forget)
for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
return reply

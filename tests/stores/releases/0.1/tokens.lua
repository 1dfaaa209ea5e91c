-- One bucket that is a level: a quota or a rate, whose tokens go out on lease, or a throttle, which is only changed.
--
-- Law: pool + leased is the bucket's level, and leased the sum of what the holders have. The level never leaves
-- [0, capacity], and nothing is granted that is not in the pool. A message may come twice, late, or its reply may be
-- lost: what a holder reports is cumulative ("spent", "changed") or absolute ("keep"), and an overtaken one is ignored.
--
-- The hash: made (which making of the key this is), born (when), pool, leased, at, scanned, holders, and a field for
-- each holder: lease, sequence, spent, changed, seen. Everything of a bucket is in one key, so in one slot.
local key, holder = KEYS[1], 'h:' .. ARGV[1]
local sequence = tonumber(ARGV[2])
local known_made = ARGV[3]                  -- the making that the sender knows, '' for none
local spent, changed = tonumber(ARGV[4]), tonumber(ARGV[5])
local spent_before, changed_before = tonumber(ARGV[6]), tonumber(ARGV[7])  -- as of the last reply it has seen
local keep = tonumber(ARGV[8])              -- tokens of its lease that it keeps, the rest goes back
local asked = tonumber(ARGV[9])             -- tokens that retries are waiting for
local more = tonumber(ARGV[10])             -- tokens that it would like to have at hand
local known_level = tonumber(ARGV[11])      -- the level as it knows it, or nil
local start, capacity, rate = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local making = ARGV[15]                     -- the name of a new making
local dead = tonumber(ARGV[16])             -- seconds of silence after which a lease comes back
local forget = tonumber(ARGV[17])           -- milliseconds that an unused key is kept
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

-- time brings tokens; a clock that was set back brings none, and does not stop them
if now > at then pool = math.min(capacity - leased, pool + (now - at) * rate) end
pool = math.max(0, pool)

-- leases of the dead come back; the sum is made anew, so that no rounding adds up
if now - scanned >= math.min(scan_every, dead / 2) or now < scanned then
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
  holders = holders + 1
  if known_made ~= made and known_level then
    -- The sender knows another making of this key, or has carried on without: what it reports is of no concern to this
    -- one. While the key is young it may have been made by somebody who knew less: the lowest level that anybody knows
    -- is taken.
    spent_before, changed_before = spent, changed
    if now - born < young then pool = math.max(0, pool - math.max(0, pool + leased - known_level)) end
  end
end

-- what was spent was out on lease, unless the lease has come back meanwhile
local paid = spent - spent_before
local from_lease = math.min(paid, lease)
lease, leased = lease - from_lease, leased - from_lease
pool = math.max(0, pool - (paid - from_lease))

-- what was earned, or spent while nobody here could be asked
local change = changed - changed_before
if change > 0 then
  pool = pool + math.min(change, math.max(0, capacity - pool - leased))
else
  pool = math.max(0, pool + change)
end

-- what is not kept goes back
local kept = math.min(keep, lease)
pool, leased, lease = pool + lease - kept, leased - lease + kept, kept

-- what is granted: all that is asked for while it is there; of what would be nice to have no more than a fair part, in
-- whole tokens, so that levels stay as whole as prices are (a billionth is what rounding may make of a refill)
local grant = asked
if grant > pool then grant = math.floor(pool + 1e-9) end
grant = grant + math.max(0, math.floor(math.min(more, (pool - grant) / (2 * holders)) + 1e-9))
pool, leased, lease = pool - grant, leased + grant, lease + grant

local function text(number) return string.format('%.17g', number) end
redis.call('HSET', key, 'made', made, 'born', text(born), 'pool', text(pool), 'leased', text(leased), 'at', text(now),
  'scanned', text(scanned), 'holders', holders, holder, struct.pack('<ddddd', lease, sequence, spent, changed, now))
redis.call('PEXPIRE', key, forget)
if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
return {made, text(lease), text(pool), text(leased)}

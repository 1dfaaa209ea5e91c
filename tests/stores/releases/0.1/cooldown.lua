-- A cooldown for the fleet: kept while it lasts, for who comes later, and published to who is there.
--
-- Law: a shorter word than the one in force changes nothing. The hash has a field for each place and group of callers:
-- until when (seconds of this server's clock), and the status of the answer that began it.
local key, place, group, channel = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local status, delay = ARGV[4], tonumber(ARGV[5])
local most = 256

local field = place .. ' ' .. group
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local before = redis.call('HGET', key, field)
if before and tonumber(string.match(before, '^%S+')) >= now + delay then return 0 end
redis.call('HSET', key, field, string.format('%.6f %s', now + delay, status))
if redis.call('PTTL', key) < delay * 1000 then redis.call('PEXPIRE', key, math.ceil(delay * 1000) + 1000) end
if redis.call('HLEN', key) > most then
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if tonumber(string.match(all[i + 1], '^%S+')) < now then redis.call('HDEL', key, all[i]) end
  end
end
redis.call('PUBLISH', channel, string.format('%s %s %s %.6f', place, group, status, delay))
return 1

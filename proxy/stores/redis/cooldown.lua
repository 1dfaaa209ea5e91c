-- A cooldown of the fleet: kept while it lasts, for processes that start later, and published to those that run now.
--
-- Law: a pushback that ends before the cooldown in force changes nothing. The hash has a field for each scope ("place")
-- and group of callers: its end (seconds of this server's clock), and the status of the answer that began it.
local key, place, group, channel = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local status, delay = ARGV[4], tonumber(ARGV[5])
local most, looked_at = 256, 16

local field = place .. ' ' .. group
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local before = redis.call('HGET', key, field)
if before and tonumber(string.match(before, '^%S+')) >= now + delay then return 0 end
redis.call('HSET', key, field, string.format('%.6f %s', now + delay, status))
if redis.call('PTTL', key) < delay * 1000 then redis.call('PEXPIRE', key, math.ceil(delay * 1000) + 1000) end
-- Remove cooldowns that are over: each time those among a few fields, read from a random position on, so that more are
-- removed than are added and the whole hash is never read at once.
if redis.call('HLEN', key) > most then
  local some = redis.call('HSCAN', key, time[2], 'COUNT', looked_at)[2]
  for i = 1, #some, 2 do
    if tonumber(string.match(some[i + 1], '^%S+')) < now then redis.call('HDEL', key, some[i]) end
  end
end
redis.call('PUBLISH', channel, string.format('%s %s %s %.6f', place, group, status, delay))
return 1

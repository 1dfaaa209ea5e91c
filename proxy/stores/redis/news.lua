-- A fact that the fleet has to know for some seconds: kept while it lasts, for processes that start later, and published
-- to those that run now.
--
-- Law: a fact that is known already for about as long is not published again, so that a fleet which finds it out at the
-- same time hears of it once. The hash has a field for each fact, with its end (seconds of this server's clock).
local key, field, channel = KEYS[1], ARGV[1], ARGV[2]
local seconds = tonumber(ARGV[3])           -- how long the fact lasts; 0: it is over
local most, looked_at, alike = 256, 16, 0.9

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local before = redis.call('HGET', key, field)
if seconds > 0 then
  if before and tonumber(before) >= now + seconds * alike then return 0 end
  redis.call('HSET', key, field, string.format('%.6f', now + seconds))
  if redis.call('PTTL', key) < seconds * 1000 then redis.call('PEXPIRE', key, math.ceil(seconds * 1000) + 1000) end
  -- Remove facts that are over, a few at a time; see cooldown.lua.
  if redis.call('HLEN', key) > most then
    local some = redis.call('HSCAN', key, time[2], 'COUNT', looked_at)[2]
    for i = 1, #some, 2 do
      if tonumber(some[i + 1]) < now then redis.call('HDEL', key, some[i]) end
    end
  end
elseif redis.call('HDEL', key, field) == 0 then
  return 0
end
redis.call('PUBLISH', channel, field .. ' ' .. string.format('%.6f', seconds))
return 1

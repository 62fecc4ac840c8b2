-- Who may call which host now: token buckets, connections and blocks of all hosts, for all workers and tenants.
--
-- ARGV[1] is a JSON array of steps, done in order and as one; the answer is a JSON array: first
-- {epoch, open, seconds until it may open, restored}, then one value a step. KEYS[1] is the prefix of every key.
--
-- An epoch is the time over which this server's memory is whole. It ends when the record of it is gone (flush), was
-- written by another server process (restart, old snapshot, failover), or the clock went back. Keys carry the epoch,
-- so nothing of an earlier one is ever read. A new epoch grants nothing until SETTLE seconds have passed, in which every
-- worker process tells which connections it holds, and until a worker has restored blocks and paces from PostgreSQL.
--
-- Fields of a host: t tokens, a when they were counted, p no refill before, b blocked until, s pace, f answers of
-- overload in a row, h when it was last halved, r when it was last raised. Times are seconds since the epoch began.

local SETTLE = 2.0 -- every process speaks twice a second
local SILENCE = 10.0 -- shorter than a lease: when nobody spoke for so long, connections may have been forgotten
local LEASE = 15.0 -- after which the connections of a process that died are free
local GUARD = 0.25 -- requests reach the target up to so much later than they were granted, some sooner than others
local GUARD_PART = 0.2 -- of the time between two requests, where the burst leaves no room for all of GUARD
local SLOWEST, STEP, STEADY = 1 / 16, 1 / 32, 1.0 -- pace: its floor, one rise, seconds between two changes
local FULL_HOUSE = 0.5 -- seconds until it is worth asking again for a connection
local IDLE, DAY = 60, 86400 -- seconds for which a host is remembered; a day where it has told something

local prefix = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1e6
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')

local record = prefix .. 'epoch'
local known = redis.call('HMGET', record, 'id', 'server', 'began', 'heard', 'opens', 'restored')
local epoch, began, heard, opens = known[1], tonumber(known[3]), tonumber(known[4]), tonumber(known[5])
local restored = known[6] == '1'

local function stamp(seconds)
    return string.format('%.6f', seconds)
end

if not epoch or known[2] ~= server or now < heard - 0.1 then
    epoch, began, heard, opens, restored = clock[1] .. '.' .. clock[2], now, now, now + SETTLE, false
    redis.call('HSET', record, 'id', epoch, 'server', server, 'began', stamp(began), 'heard', stamp(heard),
        'opens', stamp(opens), 'restored', '0')
elseif now - heard > SILENCE then
    heard, opens = now, now + SETTLE
    redis.call('HSET', record, 'heard', stamp(heard), 'opens', stamp(opens))
end

local open = restored and now >= opens
local t0 = now - began
local here = prefix .. epoch .. ':'
local waiting = {} -- by host, how many were told to come later in this call, so that they come one after the other

local function held_key(host)
    return here .. 'held:' .. host
end

local function read(host)
    local raw = redis.call('HMGET', here .. 'host:' .. host, 't', 'a', 'p', 'b', 's', 'f', 'h', 'r')
    local state = {}
    for place, name in ipairs({'t', 'a', 'p', 'b', 's', 'f', 'h', 'r'}) do
        state[name] = tonumber(raw[place]) or 0
    end
    state.new = not raw[1]
    state.s = tonumber(raw[5]) or 1
    return state
end

local function write(host, state, fill_seconds)
    local key = here .. 'host:' .. host
    local seconds = math.max(IDLE, fill_seconds or 0, state.b - t0 + IDLE)
    if state.s < 1 then
        seconds = math.max(seconds, DAY)
    end
    if not state.new then
        redis.call('HSET', key, 't', stamp(state.t), 'a', stamp(state.a), 'p', stamp(state.p))
    end
    redis.call('HSET', key, 'b', stamp(state.b), 's', stamp(state.s), 'f', state.f, 'h', stamp(state.h),
        'r', stamp(state.r))
    redis.call('EXPIRE', key, math.ceil(seconds))
end

local function rate_of(state, limits)
    return limits.adaptive and limits.rate * state.s or limits.rate
end

-- Count what came in since the last look. A host that this epoch has not seen may have been called as much as it bears
-- just before the epoch began, so it starts empty then.
local function refill(state, limits)
    local rate = rate_of(state, limits)
    if state.new then
        state.t, state.new = math.min(limits.burst, rate * t0), false
    elseif t0 > math.max(state.a, state.p) then
        state.t = math.min(limits.burst, state.t + rate * (t0 - math.max(state.a, state.p)))
    end
    state.a = math.max(state.a, t0) -- a clock that steps back gives no second credit
    return rate
end

-- Take a token. What arrives unevenly would let a full bucket's burst and what was filled in meanwhile meet at the
-- target; so credit above `level` is given once and then not filled in again for as long as it took to gather it.
local function take(state, rate, burst)
    local level = burst - math.min(GUARD * rate, math.max(burst - 1, GUARD_PART))
    if state.t > level then
        state.p = math.max(state.p, t0 + (state.t - level) / rate)
    end
    state.t = state.t - math.max(1, state.t < 1 and 2 - level or 1)
end

local function seconds_to_token(state, rate, ahead)
    if state.t >= 1 - 1e-6 then
        return 0
    end
    return (1 + ahead - state.t) / rate + math.max(0, state.p - t0)
end

local function fill_seconds(state, rate, burst)
    return (burst - state.t) / rate + math.max(0, state.p - t0) + GUARD
end

local function full_house(host, member, limits)
    local key = held_key(host)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. stamp(t0))
    return not redis.call('ZSCORE', key, member) and redis.call('ZCARD', key) >= limits.concurrency
end

local function hold(host, member)
    redis.call('ZADD', held_key(host), stamp(t0 + LEASE), member)
    redis.call('EXPIRE', held_key(host), LEASE + 1)
end

local steps = {}

-- {host, member, limits, longest wait, refund}: a connection and a token. Who may wait gets a token in advance and the
-- seconds until it is good; `refund` gives back one that was not used.
function steps.acquire(host, member, limits, longest, refund)
    if not open then
        return {'closed', math.max(opens - now, 0)}
    end
    local state = read(host)
    if state.b > t0 then
        return {'host_blocked', state.b - t0}
    end
    local rate = refill(state, limits)
    if refund then
        state.t = math.min(limits.burst, state.t + 1)
    end
    local answer
    if full_house(host, member, limits) then
        answer = {'host_rate', FULL_HOUSE}
    else
        local seconds = seconds_to_token(state, rate, longest > 0 and 0 or waiting[host] or 0)
        if seconds <= longest then
            take(state, rate, limits.burst)
            hold(host, member)
            answer = {'granted', seconds}
        else
            waiting[host] = (waiting[host] or 0) + 1
            answer = {'host_rate', seconds}
        end
    end
    write(host, state, fill_seconds(state, rate, limits.burst))
    return answer
end

local function overloaded(state, started)
    if started < state.h then
        return false -- it was sent before the host was slowed down, and tells of what is known
    end
    state.f = state.f + 1
    if state.f < 2 or t0 - state.h < STEADY then
        return false
    end
    state.s, state.h, state.f = math.max(SLOWEST, state.s / 2), t0, 0
    return true
end

local function served(state, started)
    state.f = 0
    if state.s >= 1 or started < state.h or t0 - math.max(state.h, state.r) < STEADY then
        return false
    end
    state.s, state.r = math.min(1, state.s + STEP), t0
    return true
end

-- {host, member, verdict, seconds since it was granted, limits}: the connection is free again. Answers the pace where
-- that has to be written down, else false.
function steps.release(host, member, verdict, age, limits)
    local was_held = redis.call('ZREM', held_key(host), member) == 1
    if verdict == 'none' or (verdict == 'unused' and not was_held) then
        return false
    end
    local state = read(host)
    local changed = false
    if verdict == 'served' and state.f == 0 and state.s >= 1 then
        return false
    end
    local rate = refill(state, limits)
    if verdict == 'unused' then
        state.t = math.min(limits.burst, state.t + 1)
    elseif not limits.adaptive then
        changed = state.s < 1
        state.s, state.f = 1, 0
    elseif verdict == 'overloaded' then
        changed = overloaded(state, t0 - age)
    else
        changed = served(state, t0 - age)
    end
    write(host, state, fill_seconds(state, rate, limits.burst))
    return changed and state.s
end

-- {host, seconds}: the host asked for peace. Never shortens a block.
function steps.block(host, seconds)
    local state = read(host)
    if t0 + seconds > state.b then
        state.b = t0 + seconds
        write(host, state)
    end
    return true
end

-- {host}: seconds for which it is still blocked.
function steps.look(host)
    return math.max(0, read(host).b - t0)
end

-- {held}: a process lives and holds these connections, by host.
function steps.keep(held)
    heard = now
    redis.call('HSET', record, 'heard', stamp(heard))
    for host, members in pairs(held) do
        for _, member in ipairs(members) do
            redis.call('ZADD', held_key(host), stamp(t0 + LEASE), member)
        end
        redis.call('EXPIRE', held_key(host), LEASE + 1)
    end
    return true
end

-- {epoch, states, last}: what PostgreSQL remembers, as {host, seconds blocked, pace}. With the last part the epoch has
-- all of it.
function steps.restore(of_epoch, states, last)
    if of_epoch ~= epoch then
        return false
    end
    for _, kept in ipairs(states) do
        local state = read(kept[1])
        state.b = math.max(state.b, t0 + kept[2])
        state.s = math.min(state.s, kept[3])
        write(kept[1], state)
    end
    if last then
        redis.call('HSET', record, 'restored', '1')
        restored, open = true, now >= opens
    end
    return true
end

local answers = {}
for number, step in ipairs(cjson.decode(ARGV[1])) do
    answers[number] = steps[step[1]](unpack(step, 2))
end
table.insert(answers, 1, {epoch, open, math.max(opens - now, 0), restored})
return cjson.encode(answers)

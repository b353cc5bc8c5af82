package main

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const redisServers = 5

// A redlock is a lock of redsync on five Redis servers.
type redlock struct {
	lease   time.Duration
	asks    bool // holders ask the servers, and don't only look at their clock
	servers [redisServers]*miniredis.Miniredis
}

func startRedlock(asks bool) func(time.Duration) (service, error) {
	return func(lease time.Duration) (service, error) {
		r := &redlock{lease: lease, asks: asks}
		for i := range r.servers {
			r.servers[i] = miniredis.NewMiniRedis()
			r.servers[i].ClockTTL(true) // keys expire as time passes
		}
		return r, nil
	}
}

func (r *redlock) close() {
	for _, s := range r.servers {
		s.Close()
	}
}

func (r *redlock) leap(servers int, by time.Duration, choice *rand.Rand) {
	for _, i := range choice.Perm(redisServers)[:servers] {
		r.servers[i].FastForward(by)
	}
}

func (r *redlock) connect(_ context.Context, n *network) (client, error) {
	c := &redlockClient{redlock: r}
	var pools [redisServers]redis.Pool
	for i, s := range r.servers {
		c.conns[i] = goredislib.NewClient(&goredislib.Options{
			Addr:                     "127.0.0.1:6379", // no name to look up
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return n.dial(s.Dial) },
			ContextTimeoutEnabled:    true, // redsync relies on it
			MaxRetries:               -1,
			DisableIdentity:          true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		pools[i] = goredis.NewPool(c.conns[i])
	}

	c.redsync = redsync.New(pools[:]...)
	return c, nil
}

type redlockClient struct {
	*redlock
	conns   [redisServers]*goredislib.Client
	redsync *redsync.Redsync
}

func (c *redlockClient) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

func (c *redlockClient) lock(ctx context.Context) (holding, error) {
	m := c.redsync.NewMutex("lock",
		redsync.WithExpiry(c.lease), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(c.lease/20),
		redsync.WithTimeoutFactor(0.5)) // a busy machine is not the fault we want to show
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return &redlockHolding{c, m}, nil
}

type redlockHolding struct {
	client *redlockClient
	mutex  *redsync.Mutex
}

// held looks at the clock (as redsync advises). If asks is true, a majority of the servers must
// also have the client's value. If a client gets no answers, it doesn't hold.
func (h *redlockHolding) held(ctx context.Context) bool {
	if h.client.asks {
		ctx, cancel := context.WithTimeout(ctx, h.client.lease/4)
		defer cancel()
		//lint:ignore SA1019 deprecated in favour of Until, which is looked at as well
		if valid, _ := h.mutex.ValidContext(ctx); !valid {
			return false
		}
	}
	return time.Now().Before(h.mutex.Until())
}

func (h *redlockHolding) value() string { return h.mutex.Value() }

func (h *redlockHolding) token() int64 { return 0 }

func (h *redlockHolding) write(context.Context) (bool, error) { panic("Redlock has no token") }

func (h *redlockHolding) unlock(ctx context.Context) {
	h.mutex.UnlockContext(ctx) // an error if it was lost
}

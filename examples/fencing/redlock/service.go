package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// A kind is a kind of lock.
type kind struct {
	name   string
	tokens bool // its holders have fencing tokens

	// minority reports whether its servers can disagree about the time, so that a few of them can
	// leap.
	minority bool

	start func(lease time.Duration) (service, error)
}

var kinds = []kind{
	{name: "Redlock", minority: true, start: startRedlock(false)},
	{name: "Redlock, asks", minority: true, start: startRedlock(true)},
	{name: "zkrecipes", tokens: true, start: startZooKeeper},
}

// A service has the servers of one lock.
type service interface {
	// connect returns a client that can reach the servers only over n.
	connect(ctx context.Context, n *network) (client, error)

	// leap sets forward some servers' clocks (the clocks that decide when a lock runs out).
	leap(servers int, by time.Duration, choice *rand.Rand)

	close()
}

// A client is a process that contends for the lock.
type client interface {
	// lock blocks until the client is granted the lock, or ctx ends.
	lock(ctx context.Context) (holding, error)

	close()
}

// A holding is the lock as its holder sees it.
type holding interface {
	// held reports whether the client believes that it holds the lock.
	held(ctx context.Context) bool

	// value is unique to each holding.
	value() string

	// token is greater than the token of every earlier holding, or 0 if the lock has no tokens.
	token() int64

	// write writes to ZooKeeper, which checks in the same transaction that the client holds the
	// lock. It reports whether the write was made. Don't call it if the lock has no tokens.
	write(ctx context.Context) (bool, error)

	// unlock gives the lock back if the client still has it.
	unlock(ctx context.Context)
}

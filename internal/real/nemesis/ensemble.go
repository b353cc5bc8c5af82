package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/nemesis/cluster"
)

// An ensemble is what the processes use, and what faults happen to. A client is the number of a
// process.
type ensemble interface {
	String() string // what it is
	Connect(client int) (connectString string, err error)
	Reset(client int) // the process has ended
	Aim(at cluster.Clients)
	Kinds() []string
	Missing() map[string]string // kinds, and what else cannot be had here, and why
	Beyond() map[string]string  // kinds that are left out, and why
	Inject(ctx context.Context, kind string, r *rand.Rand, lasts time.Duration, clients int) cluster.Fault
	Heal(ctx context.Context) error
	Close() error
}

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/nemesis/cluster"
)

// An ensemble is the ZooKeeper that the processes use and faults hit. A client is the number of a
// process.
type ensemble interface {
	String() string // describes the ensemble
	Connect(client int) (connectString string, err error)
	Reset(client int) // call it when the process has ended
	Aim(at cluster.Clients)
	Kinds() []string
	Missing() map[string]string // kinds (and other things) that aren't possible here, and why
	Inject(ctx context.Context, kind string, r *rand.Rand, lasts time.Duration, clients int) (detail string, err error)
	Heal(ctx context.Context) error
	Disagreement(ctx context.Context) (string, error) // what its members disagree about, or ""
	Close() error
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A plan says what to run.
type plan struct {
	Seed    uint64
	Recipes []string
	Kinds   []string      // of faults of the ensemble
	Clients int           // of each recipe
	For     time.Duration // how long to play rounds
	Length  time.Duration // of the faults of a round
	Timeout time.Duration // of sessions
	Worker  string        // the binary
	Log     func(format string, args ...any)
}

// A run has the processes of some recipes on an ensemble.
type run struct {
	plan
	on       ensemble
	base     int64
	dir      string // of the socket
	root     string // of all paths
	fleet    *fleet
	store    *store
	observer *protocol.Client // looks for leftovers, over a network without faults
	rounds   int
}

// begin starts a run, which its caller must end even if an error comes with it.
func begin(ctx context.Context, on ensemble, p plan) (*run, error) {
	r := &run{plan: p, on: on, base: monotonic()}
	r.fleet = &fleet{binary: p.Worker, on: on, ops: make(map[opKey]*Op)}
	on.Aim(r.fleet)
	return r, must.Try(func() {
		r.dir = must.Get(os.MkdirTemp("", "nemesis"))
		socket := filepath.Join(r.dir, "store")
		r.store = newStore(socket, r.now)

		// No process has this number, so no fault hits the network of the observer.
		connect := must.Get(on.Connect(len(p.Recipes) * p.Clients))
		dialing, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		r.observer = must.Get(protocol.Connect(dialing, connect, protocol.WithSessionTimeout(p.Timeout)))
		r.root = fmt.Sprintf("/nemesis-%x", rand.Uint64()) // unique, because other runs may have used the ensemble
		must.Succeed(r.create(dialing, r.root))

		for _, name := range p.Recipes {
			path := r.root + "/" + name
			must.Succeed(r.create(dialing, path+registerSuffix))
			for client := range p.Clients {
				r.fleet.start(workerConfig{
					Recipe: name, Client: client, Clients: p.Clients, Path: path, Store: socket, Timeout: p.Timeout, Base: r.base,
				}, len(r.fleet.processes))
			}
		}
	})
}

// create creates a node. (On a busy machine the observer can lose its session meanwhile.)
func (r *run) create(ctx context.Context, path string) error {
	for {
		s, err := recipe.SessionOf(ctx, r.observer)
		if err == nil {
			err = s.Create(ctx, path, nil, 0)
		}
		switch {
		case errors.Is(err, zk.ErrNodeExists): // an attempt whose answer was lost created it
			return nil
		case !errors.Is(err, protocol.ErrLost) || ctx.Err() != nil:
			return err
		}
	}
}

func (r *run) end() {
	r.fleet.end()
	if r.observer != nil {
		r.observer.Close()
	}
	if r.store != nil {
		r.store.close()
	}
	os.RemoveAll(r.dir)
}

func (r *run) now() Stamp { return Stamp(monotonic() - r.base) }

func (r *run) log(format string, args ...any) {
	if r.Log != nil {
		r.Log("%v  "+format, append([]any{r.now()}, args...)...)
	}
}

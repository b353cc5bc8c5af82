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

func begin(ctx context.Context, on ensemble, p plan) (*run, error) {
	r := &run{plan: p, on: on, base: monotonic()}
	r.fleet = &fleet{binary: p.Worker, on: on, ops: make(map[opKey]*Op)}
	on.Aim(r.fleet)
	var err error
	if r.dir, err = os.MkdirTemp("", "nemesis"); err != nil {
		return nil, err
	}

	socket := filepath.Join(r.dir, "store")
	if r.store, err = newStore(socket, r.now); err != nil {
		return r, err
	}

	// No process has this number, so no fault hits the network of the observer.
	connect, err := on.Connect(len(p.Recipes) * p.Clients)
	if err != nil {
		return r, err
	}
	dialing, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if r.observer, err = protocol.Connect(dialing, connect, protocol.WithSessionTimeout(p.Timeout)); err != nil {
		return r, err
	}

	r.root = fmt.Sprintf("/nemesis-%x", rand.Uint64()) // unique, because other runs may have used the ensemble
	if err := r.create(dialing, r.root); err != nil {
		return r, err
	}

	for _, name := range p.Recipes {
		path := r.root + "/" + name
		if err := r.create(dialing, path+registerSuffix); err != nil {
			return r, err
		}
		for client := range p.Clients {
			config := workerConfig{
				Recipe: name, Client: client, Clients: p.Clients, Path: path, Store: socket, Timeout: p.Timeout, Base: r.base,
			}
			if err := r.fleet.start(config, len(r.fleet.processes)); err != nil {
				return r, err
			}
		}
	}

	return r, nil
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

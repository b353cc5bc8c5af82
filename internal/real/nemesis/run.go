package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A plan says what to run.
type plan struct {
	Seed    uint64
	Recipes []string
	Kinds   []string      // of faults of the ensemble
	Clients int           // of each recipe
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
				Recipe: name, Client: client, Clients: p.Clients, Path: path,
				Store: socket, Timeout: p.Timeout, Base: r.base, Seed: p.Seed*1000 + uint64(len(r.fleet.processes)),
			}
			if _, err := r.fleet.start(config, len(r.fleet.processes)); err != nil {
				return r, err
			}
		}
	}

	return r, nil
}

// create creates a node. (On a busy machine the observer can lose its session meanwhile.)
func (r *run) create(ctx context.Context, path string) error {
	for {
		s, err := r.observer.Session(ctx)
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

// convergeLimit is how long a process may take for one operation when nothing is broken. It is long
// because the machine can be busy. (If something hangs, it hangs longer.)
const convergeLimit = time.Minute

// healLimit is how long the ensemble may take to recover. That can include a restart of members
// that don't recover by themselves.
const healLimit = 3 * time.Minute

// round plays one round. An error means that the nemesis itself has failed.
func (r *run) round(ctx context.Context) (*Round, error) {
	round := &Round{Number: r.rounds, Clients: r.Clients, From: r.now()}
	r.rounds++
	r.fleet.tell(cmdWork)

	faults, cancel := context.WithTimeout(ctx, r.Length)
	onEnsemble, onProcesses := draw(r.Seed, round.Number, r.Kinds, r.Timeout, r.Length)
	round.Faults = r.strike(faults, onEnsemble, onProcesses)
	<-faults.Done()
	cancel()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	healing, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	if err := r.on.Heal(healing); err != nil {
		return nil, fmt.Errorf("the ensemble does not heal: %w", err)
	}

	round.Healed = r.now()
	for _, command := range []string{cmdProve, cmdRest} {
		if len(round.Broken) == 0 {
			limit, cancel := context.WithTimeout(ctx, convergeLimit)
			round.Broken = r.fleet.ask(limit, command)
			cancel()
		}
	}

	limit, cancel := context.WithTimeout(ctx, convergeLimit)
	defer cancel()
	if len(round.Broken) == 0 {
		left, err := r.remains(limit)
		if err != nil {
			return nil, err
		}
		for _, node := range left {
			round.Broken = append(round.Broken, "left behind: "+node)
		}
	}

	var died []string
	round.Ops, died = r.fleet.take()
	round.Broken = append(round.Broken, died...)
	if slices.Contains(r.Recipes, "queue") && len(round.Broken) == 0 {
		drained, err := drain(limit, r.observer, r.root+"/queue", r.now)
		if err != nil {
			return nil, err
		}
		round.Ops = append(round.Ops, drained...)
	}

	round.Writes = r.store.take()
	round.To = r.now()
	if ctx.Err() != nil { // we were interrupted, so nothing is wrong
		return nil, ctx.Err()
	}
	return round, nil
}

// remains returns the ephemeral nodes that stay although all processes rest. It waits for a while,
// because the sessions of killed processes must end and clients clean up in the background.
func (r *run) remains(ctx context.Context) (nodes []string, err error) {
	for until := time.Now().Add(4*r.Timeout + 20*time.Second); ; sleep(ctx, 100*time.Millisecond) {
		s, err := r.observer.Session(ctx)
		if err != nil {
			return nil, err
		}
		nodes, err = ephemerals(ctx, s, r.root)
		if errors.Is(err, protocol.ErrLost) && ctx.Err() == nil {
			continue
		}
		if err != nil || len(nodes) == 0 || time.Now().After(until) {
			return nodes, err
		}
	}
}

// ephemerals returns the ephemeral nodes below a path.
func ephemerals(ctx context.Context, s *protocol.Session, path string) (nodes []string, err error) {
	children, _, err := s.Children(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	for _, child := range children {
		below := path + "/" + child
		stat, err := s.Exists(ctx, below)
		if err != nil {
			return nil, err
		}
		if stat == nil {
			continue
		}
		if stat.EphemeralOwner != 0 {
			nodes = append(nodes, fmt.Sprintf("%s of session %#x", below, stat.EphemeralOwner))
			continue
		}
		more, err := ephemerals(ctx, s, below)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, more...)
	}

	return nodes, nil
}

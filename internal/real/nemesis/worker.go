package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// workerEnv is the environment variable that has a worker's workerConfig. It makes this binary a
// worker.
const workerEnv = "ZKRECIPES_NEMESIS_WORKER"

type workerConfig struct {
	Recipe  string
	Client  int // 0 to Clients-1
	Clients int // of the recipe
	Life    int
	Connect string // the connect string
	Path    string // of the recipe
	Store   string // the socket of the fenced store
	Timeout time.Duration
	Base    int64  // the time of stamp 0
	Seed    uint64 // for the worker's choices
}

// Commands on a worker's standard input, one per line. The worker ends with its input.
const (
	cmdWork  = "work"  // until the next command
	cmdProve = "prove" // do one operation, which must succeed
	cmdRest  = "rest"  // give back everything held across operations

	// These only change how long it keeps a lock.
	cmdKeep  = "keep"  // as long as it can
	cmdHurry = "hurry" // a moment
	cmdFree  = "free"  // as long as it likes (the default)
)

// A line is a line of output: the current state of an operation, or that cmdProve or cmdRest is
// done.
type line struct {
	Op    *Op    `json:"op,omitempty"`
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// A worker is a process that uses one recipe. It keeps one session.
type worker struct {
	workerConfig
	client *protocol.Client
	rand   *rand.Rand
	fenced *storeClient
	life   context.Context // ends with the next command
	proves bool            // nothing is broken, so the operation must succeed
	first  usage           // at its first rest
	pace   atomic.Value    // the last of cmdKeep, cmdHurry and cmdFree; nil if there was none

	mu  sync.Mutex // protects the fields below
	out io.Writer
	ids int
}

// runWorker is the main function of a worker.
func runWorker(config string) error {
	w := &worker{out: os.Stdout}
	if err := json.Unmarshal([]byte(config), &w.workerConfig); err != nil {
		return err
	}
	w.rand = rand.New(rand.NewPCG(w.Seed, uint64(w.Life)))

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commands := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch command := lines.Text(); command {
			case cmdKeep, cmdHurry, cmdFree:
				w.pace.Store(command)
			default:
				commands <- command
			}
		}
		close(commands)
		cancel()
	}()

	var err error
	if w.fenced, err = dialStore(w.Store); err != nil {
		return err
	}
	w.client, err = protocol.Connect(ctx, w.Connect, protocol.WithSessionTimeout(w.Timeout))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}

	defer w.client.Close()
	return w.serve(ctx, recipes[w.Recipe].workload(w), commands)
}

// serve executes the commands until there are no more.
func (w *worker) serve(ctx context.Context, do workload, commands <-chan string) error {
	command, ok := <-commands
	for ok {
		var cancel context.CancelFunc
		w.life, cancel = context.WithCancel(ctx)
		w.proves = command == cmdProve
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.obey(command, do)
		}()

		command, ok = <-commands
		cancel()
		<-done
	}
	return nil
}

// obey executes a command until w.life ends.
func (w *worker) obey(command string, do workload) {
	if command == cmdRest {
		var err error
		if do.rest != nil {
			err = do.rest()
		}
		if err == nil {
			err = w.sample()
		}
		w.print(line{Done: command, Error: text(err)})
		return
	}

	// It goes on after it has proved itself, because other processes may need it for their proof.
	proved := false
	for w.life.Err() == nil {
		err := do.step()
		if w.proves && err == nil && !proved {
			proved = true
			w.print(line{Done: command})
		}
		w.sleep(time.Duration(w.rand.Int64N(int64(60 * time.Millisecond))))
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (w *worker) now() Stamp { return Stamp(monotonic() - w.Base) }

// sleep blocks for d, or until the next command.
func (w *worker) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.life.Done():
	}
}

// chance reports true once in n times.
func (w *worker) chance(n int) bool { return w.rand.IntN(n) == 0 }

// wait returns the context of a call that may wait for other processes. Some contexts are short, so
// that calls are withdrawn at any moment.
func (w *worker) wait() (context.Context, context.CancelFunc) {
	switch {
	case w.proves:
		return context.WithCancel(w.life)
	case w.chance(3):
		return context.WithTimeout(w.life, time.Duration(w.rand.Int64N(int64(100*time.Millisecond))))
	}
	return context.WithTimeout(w.life, 4*w.Timeout)
}

// effect returns the context of a call that changes something and doesn't wait for other processes.
// It outlasts most faults, because calls with unknown outcomes weaken the checks.
func (w *worker) effect() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*w.Timeout)
}

// spell returns how long to keep a lock. Sometimes that's long enough for a fault.
func (w *worker) spell() time.Duration {
	switch {
	case w.proves:
		return 0
	case w.chance(4):
		return time.Duration(w.rand.Int64N(int64(3 * w.Timeout)))
	}
	return time.Duration(w.rand.Int64N(int64(50 * time.Millisecond)))
}

// print prints a line with a single write, so that a kill can't cut it in two.
func (w *worker) print(l line) {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.out.Write(append(b, '\n')); err != nil {
		os.Exit(1) // the parent has ended
	}
}

func (w *worker) tell(o *Op) { w.print(line{Op: o}) }

// call begins an operation.
func (w *worker) call(kind, value string) *Op {
	w.mu.Lock()
	w.ids++
	o := &Op{Recipe: w.Recipe, Client: w.Client, Life: w.Life, ID: w.ids, Kind: kind, Value: value}
	w.mu.Unlock()
	o.Call = w.now()
	w.tell(o)
	return o
}

// returns notes that the call has returned. If err isn't nil the call has changed nothing, unless
// otherwise says more.
func (w *worker) returns(o *Op, err error, otherwise Outcome) error {
	o.Return = w.now()
	o.Outcome, o.Error = OK, text(err)
	if err != nil {
		o.Outcome = otherwise
	}
	w.tell(o)
	return err
}

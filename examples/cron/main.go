// Cron shows a nightly job on three machines. Each night cron starts a process on each of them, and
// one process writes the report. In the second night that process dies on the way, and another one
// writes the report. Afterwards all machines fetch the report, one at a time:
//
//	go run ./examples/cron
//
// The machines are copies of this program. They meet on a ZooKeeper inside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// sessionTimeout decides how soon the others learn that a machine has died.
var sessionTimeout = 2 * time.Second

func main() {
	log.SetFlags(0)
	m := machine{}
	flag.StringVar(&m.name, "machine", "", "be the machine of this `name`; the program starts its copies with this")
	flag.StringVar(&m.servers, "servers", "", "where the machine finds ZooKeeper")
	flag.StringVar(&m.night, "night", "", "the `date` of the report")
	flag.BoolVar(&m.dies, "dies", false, "die while the report is being written")
	flag.DurationVar(&sessionTimeout, "timeout", sessionTimeout, "the session timeout")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	work := m.run
	if m.name == "" {
		work = func(ctx context.Context) error { return show(ctx, os.Stdout) }
	}
	if err := work(ctx); err != nil {
		log.Fatal("cron: ", err)
	}
}

// A machine is a process that cron has started.
type machine struct {
	name, servers, night string
	dies                 bool
}

func (m machine) run(ctx context.Context) error {
	client, err := protocol.Connect(ctx, m.servers, protocol.WithSessionTimeout(sessionTimeout))
	if err != nil {
		return err
	}
	defer client.Close()

	// One process at a time gets into write, until one has returned nil.
	ran, err := once.New(client, "/reports/nightly").Do(ctx, m.night, m.write)
	if err != nil {
		return err
	}
	if !ran {
		fmt.Println("finds the report written")
	}

	// All processes get into fetch, one at a time.
	return lock.New(client, "/reports/fetch").Do(ctx, m.fetch)
}

// write stands for the real work. A store would compare the token with the greatest that it has
// seen: see docs/failure.md.
func (m machine) write(ctx context.Context, token int64) error {
	fmt.Printf("writes the report of %s with token %d\n", m.night, token)
	if m.dies {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		return self.Kill() // and nothing is given back
	}
	return pause(ctx)
}

func (m machine) fetch(ctx context.Context, _ *lock.Lease) error {
	fmt.Println("fetches the report")
	defer fmt.Println("has fetched it")
	return pause(ctx)
}

// pause takes as long as the work would. It ends early if ctx does: the right to work is lost.
func pause(ctx context.Context) error {
	select {
	case <-time.After(200 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

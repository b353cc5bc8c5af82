// Cron shows a nightly job on three machines. Each night cron starts a process on each of them, and
// one process writes the report. In the second night that process dies after it has written the
// report (and before that is recorded). So another process gets its turn, and finds the report in
// the store. Afterwards all machines fetch the report, one at a time:
//
//	go run ./examples/cron
//	go run ./examples/cron -servers zk1:2181,zk2:2181,zk3:2181
//
// The first runs on a ZooKeeper inside the program. The second leaves nothing on the ensemble.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func main() {
	servers := flag.String("servers", "", "`host:port,...` of an ensemble (default: a ZooKeeper inside this program)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *servers); err != nil {
		log.Fatal("cron: ", err)
	}
}

// run plays two nights.
func run(ctx context.Context, out io.Writer, servers string) (err error) {
	box, err := sandbox.Open(servers, "cron")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	lines := log.New(out, "", 0)

	lines.Printf("The first night: cron starts three machines, %v.", box)
	if err := start(ctx, lines, box.Servers, "2030-01-31", ""); err != nil {
		return err
	}
	lines.Print("\nThe second night: a machine dies after it has written the report.")
	if err := start(ctx, lines, box.Servers, "2030-02-01", "machine 1"); err != nil {
		return err
	}

	lines.Print("\nOne report was written for each night. Fin.")
	return nil
}

// start starts the job on each machine, as cron does.
func start(ctx context.Context, lines *log.Logger, servers, night, dying string) error {
	failed := make(chan error, 3)
	var machines sync.WaitGroup
	for _, name := range []string{"machine 1", "machine 2", "machine 3"} {
		say := func(text ...any) { lines.Print("  ", name, " ", fmt.Sprint(text...)) }
		m := machine{say, servers, night, name == dying}
		machines.Go(func() {
			if err := m.run(ctx); errors.Is(err, errDied) {
				m.say("dies")
			} else if err != nil {
				failed <- err
			}
		})
		if m.dies {
			machines.Wait() // the others come later, so that this process writes the report
		}
	}

	machines.Wait()
	close(failed)
	return <-failed
}

// A machine is a process that cron has started.
type machine struct {
	say            func(...any)
	servers, night string
	dies           bool
}

func (m machine) run(ctx context.Context) error {
	// A job that hangs must not meet the next night's job.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	client, err := protocol.Connect(ctx, m.servers, protocol.WithLogger(slog.Default()))
	if err != nil {
		return err
	}

	defer client.Close()

	// One process at a time gets into write, until write has returned nil once.
	ran, err := once.New(client, "/reports/nightly").Do(ctx, m.night, m.write)
	if err != nil {
		return err
	}
	if !ran {
		m.say("finds the job done")
	}

	// All processes get here, one at a time.
	return lock.New(client, "/reports/fetch").Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
		m.say("fetches the report")
		defer m.say("has fetched it")
		return pause(ctx)
	})
}

var errDied = errors.New("died")

// write creates the report if there is none. A process can die after write has returned nil, and
// before Do has recorded that. Then write runs again with a greater token. So no token keeps the
// second report out, but the report's key does. Here the key is a node's name. In a database it is
// a row that the transaction of the report inserts with ON CONFLICT DO NOTHING (see
// examples/fencing).
//
// Multi keeps out a process that has lost its turn. (In a database, the token does.)
func (m machine) write(ctx context.Context, r *once.Run) error {
	if err := pause(ctx); err != nil { // as long as the real work would take
		return err
	}

	_, err := r.Multi(ctx, &zk.CreateRequest{Path: "/reports/" + m.night, Data: []byte("all is well")})
	if errors.Is(err, zk.ErrNodeExists) {
		m.say("finds the report of ", m.night, " in the store")
		return nil
	} else if err != nil {
		return err
	}

	m.say("writes the report of ", m.night)
	if m.dies {
		return errDied
	}
	return nil
}

// pause ends early if ctx does, because then the right to work is lost.
func pause(ctx context.Context) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

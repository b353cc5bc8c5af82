// Workqueue shows three workers that share a queue of mail. One worker dies in the middle of a
// delivery, and another worker gets that mail. One mail can't be delivered and goes to the dead
// letters after three attempts. The program ends once the queue is empty:
//
//	go run ./examples/workqueue
//	go run ./examples/workqueue -servers zk1:2181,zk2:2181,zk3:2181
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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

const (
	fatal = "to dora" // the worker that delivers it first dies
	dead  = "to zoe@nowhere"
)

func main() {
	servers := flag.String("servers", "", "`host:port,...` of an ensemble (default: a ZooKeeper inside this program)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *servers); err != nil {
		log.Fatal("workqueue: ", err)
	}
}

// run fills the queue, and lets three workers share it until no mail is left.
func run(ctx context.Context, out io.Writer, servers string) (err error) {
	box, err := sandbox.Open(servers, "workqueue")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()

	lines := log.New(out, "", 0)
	client, err := connect(ctx, box.Servers)
	if err != nil {
		return err
	}
	defer client.Close()

	mail, failed := queues(client)
	var letters [][]byte
	for to := range strings.SplitSeq("ann,bob,dora,zoe@nowhere,eve,fred,gil,hal", ",") {
		letters = append(letters, []byte("to "+to))
	}
	if _, err := mail.OfferAll(ctx, letters); err != nil {
		return err
	}

	lines.Printf("%d mails are in the queue, %v.", len(letters), box)

	working, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for _, name := range []string{"worker 1", "worker 2", "worker 3"} {
		workers.Go(func() {
			err := work(working, box.Servers, func(text string) { lines.Print("  ", name, " ", text) })
			if err != nil {
				lines.Printf("  %s dies. Its mail comes back. (%v)", name, err)
			}
		})
	}

	err = mail.Drained(ctx) // none is left, reserved or not
	stop()
	workers.Wait()
	if err != nil {
		return err
	}

	lines.Print("The queue is drained. In the dead letters:")
	for letter, err := range failed.List(ctx) {
		if err != nil {
			return err
		}
		lines.Printf("  from %s", letter.Origin)
	}

	lines.Print("Fin.")
	return nil
}

// connect gives up after a while, so that a wrong address shows. The logger gets everything an
// operator should know (an outage, for example).
func connect(ctx context.Context, servers string) (*protocol.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return protocol.Connect(ctx, servers, protocol.WithLogger(slog.Default()))
}

// queues returns the queue, and the queue for mail that can't be delivered.
func queues(client *protocol.Client) (mail, failed *queue.Queue) {
	failed = queue.New(client, "/mail/failed")
	return queue.New(client, "/mail/out", queue.WithDeadLetter(failed, 3),
		queue.WithRetryDelay(func(int) time.Duration { return 100 * time.Millisecond })), failed
}

// work is a worker: it delivers mail until ctx ends (SIGTERM ends it).
func work(ctx context.Context, servers string, say func(string)) error {
	client, err := connect(ctx, servers)
	if err != nil {
		return err
	}
	defer client.Close()

	// If the function returns nil, Consume acknowledges the mail. Otherwise the mail comes back.
	mail, _ := queues(client)
	return mail.Consume(ctx, 1, func(ctx context.Context, it *queue.Item) error {
		say(fmt.Sprintf("delivers mail %s, attempt %d", it.Data(), it.Attempt()))
		if string(it.Data()) == fatal && it.Attempt() == 1 {
			client.Close() // as the death of a process ends its session
		}
		return deliver(ctx, string(it.Data()))
	})
}

// deliver can be called several times for a mail, because a worker can die after it has delivered
// the mail and before it has acknowledged it.
func deliver(ctx context.Context, to string) error {
	if to == dead {
		return errors.New("no such mailbox")
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done(): // the reservation is lost, or the worker should end
		return context.Cause(ctx)
	}
}

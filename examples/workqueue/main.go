// Workqueue shows three workers that share a queue of mail. One worker is killed in the middle of a
// delivery, and that mail goes to another worker. One mail cannot be delivered, and goes to the
// dead letters after three attempts. The program ends once the queue is drained:
//
//	go run ./examples/workqueue
//
// The workers are copies of this program. They meet on a ZooKeeper inside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

const (
	fatal = "to dora" // its first delivery is that of the worker that is killed
	dead  = "to zoe@nowhere"
)

// sessionTimeout decides how soon the mail of a dead worker comes back.
var sessionTimeout = 2 * time.Second

func main() {
	log.SetFlags(0)
	name := flag.String("worker", "", "be the worker of this `name`; the program starts its copies with this")
	servers := flag.String("servers", "", "where the worker finds ZooKeeper")
	flag.DurationVar(&sessionTimeout, "timeout", sessionTimeout, "the session timeout")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *name != "" {
		err = work(ctx, *servers)
	} else {
		err = show(ctx, os.Stdout)
	}
	if err != nil {
		log.Fatal("workqueue: ", err)
	}
}

// mail returns the queue, and where it puts what cannot be delivered.
func mail(client *protocol.Client) (mail, failed *queue.Queue) {
	failed = queue.New(client, "/mail/failed")
	return queue.New(client, "/mail/out", queue.WithDeadLetter(failed, 3),
		queue.WithRetryDelay(func(int) time.Duration { return 100 * time.Millisecond })), failed
}

// work delivers mail until standard input ends.
func work(ctx context.Context, servers string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	client, err := protocol.Connect(ctx, servers, protocol.WithSessionTimeout(sessionTimeout))
	if errors.Is(err, context.Canceled) {
		return nil // the others have done all
	} else if err != nil {
		return err
	}
	defer client.Close()

	out, _ := mail(client)
	err = out.Consume(ctx, 1, deliver) // acknowledges what succeeds, puts off what fails
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// deliver may be called more than once for a mail: a worker may die after it has delivered one, and
// before that is acknowledged.
func deliver(ctx context.Context, it *queue.Item) error {
	fmt.Printf("delivers mail %s, attempt %d\n", it.Data(), it.Attempt())
	if string(it.Data()) == dead {
		return errors.New("no such mailbox")
	}

	takes := 50 * time.Millisecond
	if string(it.Data()) == fatal && it.Attempt() == 1 {
		takes = time.Hour // it is killed before
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done(): // the reservation is lost, or the worker is to end
		return context.Cause(ctx)
	}
}

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func Example() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/mail")
	for _, text := range []string{"first", "second"} {
		id, err := q.Offer(ctx, []byte(text))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("offered", id)
	}
	for range 2 {
		data, err := q.Take(ctx)
		var uncertain *queue.UncertainError
		if errors.As(err, &uncertain) {
			// It was removed, or not: do what is better for this kind of data, drop it or
			// handle it twice.
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("took %s\n", data)
	}
	// Output:
	// offered qn-0000000001
	// offered qn-0000000002
	// took first
	// took second
}

// Workers that may fail. What has failed is tried again, and put aside after three attempts.
func ExampleQueue_Consume() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	dead := queue.New(client, "/queues/failed-mail")
	q := queue.New(client, "/queues/mail", queue.WithDeadLetter(dead, 3))
	for _, to := range []string{"ann", "carol", "bob"} {
		if _, err := q.Offer(ctx, []byte(to)); err != nil {
			log.Fatal(err)
		}
	}

	work, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		if err := q.Drained(work); err == nil {
			stop()
		}
	}()
	err = q.Consume(work, 1, func(ctx context.Context, it *queue.Item) error {
		if string(it.Data()) == "carol" {
			return errors.New("no such mailbox")
		}
		fmt.Printf("delivered to %s\n", it.Data())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	for letter, err := range dead.List(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		_, why, _ := strings.Cut(letter.Origin, " after ") // what comes first is its path and ID
		fmt.Println("failed:", why)
	}
	// Output:
	// delivered to ann
	// delivered to bob
	// failed: 3 attempts: no such mailbox
}

// An order that is offered twice, since the first reply was lost, is one entry.
func ExampleQueue_OfferKey() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/orders")
	for range 2 {
		if _, err := q.OfferKey(ctx, "order-1234", []byte("two teapots")); err != nil {
			log.Fatal(err)
		}
	}

	n, err := q.Len(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("entries:", n)
	// Output:
	// entries: 1
}

// An item that cannot be handled now is put off, and does not hold the others up.
func ExampleAfter() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/calls")
	if _, err := q.OfferAll(ctx, [][]byte{[]byte("engaged"), []byte("free")}); err != nil {
		log.Fatal(err)
	}

	for range 3 {
		it, err := q.Reserve(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, attempt %d\n", it.Data(), it.Attempt())

		if string(it.Data()) == "engaged" && it.Attempt() == 1 {
			err = it.Nack(ctx, queue.After(100*time.Millisecond))
		} else {
			err = it.Ack(ctx)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// engaged, attempt 1
	// free, attempt 1
	// engaged, attempt 2
}

// What an operator sees: the entries, and which of them are being worked on.
func ExampleQueue_List() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/jobs")
	if _, err := q.OfferAll(ctx, [][]byte{[]byte("first"), []byte("second")}); err != nil {
		log.Fatal(err)
	}
	it, err := q.Reserve(ctx)
	if err != nil {
		log.Fatal(err)
	}

	for entry, err := range q.List(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, %d bytes, reserved: %t\n", entry.ID, entry.Size, entry.Holder != 0)
	}
	if err := it.Ack(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// qn-0000000001, 5 bytes, reserved: true
	// qn-0000000002, 6 bytes, reserved: false
}

// A worker that may crash: what it has not acknowledged comes back, and what has failed three times
// is put aside.
func ExampleQueue_Items() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	dead := queue.New(client, "/queues/failed-jobs")
	q := queue.New(client, "/queues/jobs", queue.WithDeadLetter(dead, 3))
	if _, err := q.OfferAll(ctx, [][]byte{[]byte("poison"), []byte("good")}); err != nil {
		log.Fatal(err)
	}
	for item, err := range q.Items(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, attempt %d\n", item.Data(), item.Attempt())
		if string(item.Data()) == "good" {
			if err := item.Ack(ctx); err != nil {
				log.Fatal(err)
			}
			break
		}
		if err := item.Nack(ctx); err != nil {
			log.Fatal(err)
		}
	}
	data, err := dead.Poll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("dead letter: %s\n", data)
	// Output:
	// poison, attempt 1
	// poison, attempt 2
	// poison, attempt 3
	// good, attempt 1
	// dead letter: poison
}

// When it is not known whether entries were removed, the error has them.
func ExampleUncertainError() {
	take := func(ctx context.Context, q *queue.Queue) ([][]byte, error) {
		entries, err := q.PollN(ctx, 100)
		if uncertain := (*queue.UncertainError)(nil); errors.As(err, &uncertain) {
			return uncertain.Data, nil // handled twice, perhaps, and not lost
		}
		return entries, err
	}

	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	q := queue.New(client, "/queues/mail")
	if err := offerTexts(ctx, q, "first", "second"); err != nil {
		log.Fatal(err)
	}
	entries, err := take(ctx, q)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", entries)
	// Output:
	// [first second]
}

func offerTexts(ctx context.Context, q *queue.Queue, entries ...string) error {
	for _, entry := range entries {
		if _, err := q.Offer(ctx, []byte(entry)); err != nil {
			return err
		}
	}
	return nil
}

// A producer waits while the queue is full, and so never gets far ahead of its consumers.
func ExampleWithMaxLength() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/frames", queue.WithMaxLength(1))
	if err := offerTexts(ctx, q, "first"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("full:", errors.Is(offerTexts(ctx, q, "second"), queue.ErrFull))

	waited := make(chan error)
	go func() {
		_, err := q.OfferWait(ctx, []byte("second"))
		waited <- err
	}()
	data, err := q.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("took %s; room for the second: %t\n", data, <-waited == nil)
	// Output:
	// full: true
	// took first; room for the second: true
}

// What is urgent overtakes what is not. kazoo's Queue may offer here, too.
func ExampleWithPriorities() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/alerts", queue.WithPriorities())
	if err := offerTexts(ctx, q, "disk is half full"); err != nil { // with priority 100
		log.Fatal(err)
	}
	if _, err := q.OfferPriority(ctx, 1, []byte("disk is full")); err != nil {
		log.Fatal(err)
	}
	data, err := q.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", data)
	// Output:
	// disk is full
}

// Keys are remembered for a day, so a producer may repeat an offer for that long.
func ExampleWithKeyRetention() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/payments", queue.WithKeyRetention(24*time.Hour))
	for range 2 {
		if _, err := q.OfferKey(ctx, "payment-17", []byte("5 EUR")); err != nil {
			log.Fatal(err)
		}
	}
	n, err := q.Len(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("entries:", n)
	// Output:
	// entries: 1
}

// What fails is put off for as long as the option says.
func ExampleWithRetryDelay() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/hooks", queue.WithRetryDelay(func(attempt int) time.Duration {
		return time.Duration(attempt) * 10 * time.Millisecond
	}))
	if err := offerTexts(ctx, q, "hook"); err != nil {
		log.Fatal(err)
	}

	work, stop := context.WithCancel(ctx)
	go func() {
		if err := q.Drained(work); err == nil {
			stop()
		}
	}()
	err = q.Consume(work, 1, func(ctx context.Context, it *queue.Item) error {
		fmt.Println("attempt", it.Attempt())
		if it.Attempt() < 3 {
			return errors.New("503")
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}

// A function that panics does not take the item with it: it comes back. With this option the panic
// goes on, too.
func ExamplePanicError() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/images")
	if err := offerTexts(ctx, q, "broken.png"); err != nil {
		log.Fatal(err)
	}
	defer func() {
		if p, ok := recover().(*queue.PanicError); ok {
			fmt.Println("panic:", p.Value)
		}
		n, err := q.Len(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("entries:", n)
	}()
	err = q.Consume(ctx, 1, func(context.Context, *queue.Item) error { panic("no pixels") }, queue.WithPanics())
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// panic: no pixels
	// entries: 1
}

// An item that goes to the tail lets all the others go first.
func ExampleAtTail() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/builds")
	if err := offerTexts(ctx, q, "long", "short"); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		it, err := q.Reserve(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, attempt %d\n", it.Data(), it.Attempt())
		if string(it.Data()) == "long" && it.Attempt() == 1 {
			if err := it.Nack(ctx, queue.AtTail()); err != nil {
				log.Fatal(err)
			}
		} else {
			if err := it.Ack(ctx); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// long, attempt 1
	// short, attempt 1
	// long, attempt 2
}

// A worker that is told to stop has a moment to finish. What it does not finish is no failed attempt.
func ExampleWithGrace() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := queue.New(client, "/queues/films")
	if err := offerTexts(ctx, q, "short", "long"); err != nil {
		log.Fatal(err)
	}
	working, stop := context.WithCancel(ctx) // signal.NotifyContext, in production
	err = q.Consume(working, 2, func(ctx context.Context, it *queue.Item) error {
		if string(it.Data()) == "short" {
			time.Sleep(20 * time.Millisecond)
			stop()
			return nil
		}
		<-ctx.Done() // 50 ms after stop
		return ctx.Err()
	}, queue.WithGrace(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	it, err := q.Reserve(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, attempt %d\n", it.Data(), it.Attempt())
	if err := it.Ack(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// long, attempt 1
}

// What is with the dead letters says why, and can be brought back once the reason is mended.
func ExampleBecause() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	dead := queue.New(client, "/queues/failed-calls")
	q := queue.New(client, "/queues/calls", queue.WithDeadLetter(dead, 1))
	if err := offerTexts(ctx, q, "call"); err != nil {
		log.Fatal(err)
	}
	it, err := q.Reserve(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := it.Nack(ctx, queue.Because(errors.New("503"))); err != nil {
		log.Fatal(err)
	}
	for letter, err := range dead.List(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("failed:", letter.Reason)
	}
	n, err := q.Redrive(ctx, dead, 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("brought back:", n)
	// Output:
	// failed: 503
	// brought back: 1
}

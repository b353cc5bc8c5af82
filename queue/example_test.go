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

// connect returns a client of an embedded server, and a function that closes both.
func connect() (client *protocol.Client, disconnect func()) {
	server, err := embedded.Start(embedded.Config{}) // in production: an ensemble
	if err != nil {
		log.Fatal(err)
	}

	client, err = protocol.Connect(context.Background(), server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}

	return client, func() { client.Close(); server.Close() }
}

func Example() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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
			// The entries were removed or not. Do what is better for your data: drop them, or
			// handle them twice.
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

// Workers can fail. An item that fails is tried again (here after ten milliseconds, then twenty).
// After three attempts it goes to the dead letters.
func ExampleQueue_Consume() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

	dead := queue.New(client, "/queues/failed-mail")
	q := queue.New(client, "/queues/mail", queue.WithDeadLetter(dead, 3),
		queue.WithRetryDelay(func(attempt int) time.Duration { return time.Duration(attempt) * 10 * time.Millisecond }))
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

	err := q.Consume(work, 1, func(ctx context.Context, it *queue.Item) error {
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

		_, why, _ := strings.Cut(letter.Origin, " after ") // before that come its path and ID
		fmt.Println("failed:", why)
	}

	// Output:
	// delivered to ann
	// delivered to bob
	// failed: 3 attempts: no such mailbox
}

// An order is offered twice because the first reply was lost. It is still one entry, for a day.
func ExampleQueue_OfferKey() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

	q := queue.New(client, "/queues/orders", queue.WithKeyRetention(24*time.Hour))
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

// An item that can't be handled now is put off, and goes behind the others.
func ExampleAfter() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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
			err = it.Nack(ctx, queue.After(100*time.Millisecond), queue.AtTail())
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

// An operator sees the entries and who works on them.
func ExampleQueue_List() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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

// If a worker crashes, its items come back. An item that has failed three times goes to the dead
// letters.
func ExampleQueue_Items() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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

// If nobody knows whether entries were removed, the error contains them.
func ExampleUncertainError() {
	take := func(ctx context.Context, q *queue.Queue) ([][]byte, error) {
		entries, err := q.PollN(ctx, 100)
		if uncertain := (*queue.UncertainError)(nil); errors.As(err, &uncertain) {
			return uncertain.Data, nil // perhaps handled twice, but not lost
		}

		return entries, err
	}

	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()
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

// A producer waits while the queue is full. So it never gets far ahead of its consumers.
func ExampleWithMaxLength() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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

// Urgent entries overtake others. (kazoo's Queue can offer here too.)
func ExampleWithPriorities() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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

// If a function panics, its item comes back. With this option Consume panics too.
func ExamplePanicError() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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

	err := q.Consume(ctx, 1, func(context.Context, *queue.Item) error { panic("no pixels") }, queue.WithPanics())
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// panic: no pixels
	// entries: 1
}

// When a worker must stop, it has a moment to finish. Unfinished work is no failed attempt.
func ExampleWithGrace() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

	q := queue.New(client, "/queues/films")
	if err := offerTexts(ctx, q, "short", "long"); err != nil {
		log.Fatal(err)
	}

	working, stop := context.WithCancel(ctx) // in production: signal.NotifyContext
	err := q.Consume(working, 2, func(ctx context.Context, it *queue.Item) error {
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

// A dead letter says why it failed. Once the reason is mended, bring it back.
func ExampleBecause() {
	ctx := context.Background()
	client, disconnect := connect()
	defer disconnect()

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

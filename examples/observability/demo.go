package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// longest bounds the demonstration, which takes seconds.
const longest = 100 * time.Second

type options struct {
	serve  bool
	listen string
}

// A demo is a team of workers, and what happens to them.
type demo struct {
	out     io.Writer
	server  *embedded.Server
	metrics *metrics
	events  *tally
	workers []*worker
}

// run shows the demonstration, and returns the metrics at its end.
func run(ctx context.Context, out io.Writer, o options) (page string, err error) {
	server, err := embedded.Start(embedded.Config{TickTime: 500 * time.Millisecond})
	if err != nil {
		return "", err
	}
	defer server.Close()
	m, err := serveMetrics(o.listen)
	if err != nil {
		return "", err
	}
	defer m.close()

	d := &demo{out: out, server: server, metrics: m, events: newTally(m)}
	fmt.Fprintln(out, "The metrics are at", m.url)
	defer func() {
		for _, w := range d.workers {
			w.client.Close()
		}
	}()

	for i := range 3 {
		w, err := newWorker(ctx, fmt.Sprintf("worker-%d", i+1), server.ConnectString(), m, d.events)
		if err != nil {
			return "", err
		}
		d.workers = append(d.workers, w)
	}

	// One process observes the depth of the queues, as each look is a listing.
	for path, q := range map[string]*queue.Queue{"/demo/tasks": d.workers[0].tasks, "/demo/dead": d.workers[0].dead} {
		if _, err := m.ObserveQueue(path, q); err != nil {
			return "", err
		}
	}
	return d.run(ctx, o.serve)
}

func (d *demo) run(ctx context.Context, serve bool) (page string, err error) {
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, len(d.workers)+1)
	go func() { ended <- d.workers[0].produce(working) }()
	for _, w := range d.workers {
		go func() { ended <- w.work(working) }()
	}
	defer func() {
		stop()
		for range cap(ended) {
			err = errors.Join(err, <-ended)
		}
	}()

	acting, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, act := range []func(context.Context) error{d.deadLetter, d.busy, d.collision, d.expiry, d.outage} {
		if err := act(acting); err != nil {
			return "", err
		}
	}

	if page, err = d.scrape(acting); err != nil {
		return "", err
	}
	d.summarize(page)

	if serve {
		fmt.Fprintln(d.out, "\nThe workers go on until Ctrl-C. The metrics are at", d.metrics.url)
		<-ctx.Done()
		return page, ctx.Err()
	}
	return page, nil
}

// scrape returns the metrics once all that is measured on request was measured in time.
func (d *demo) scrape(ctx context.Context) (page string, err error) {
	for {
		page, err = d.metrics.scrape(ctx)
		if err != nil || strings.Count(page, "\nzkrecipes_queue_depth{") == 2 {
			return page, err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, "\n"+format+"\n", args...) }

func (d *demo) deadLetter(ctx context.Context) error {
	d.say("Three workers contend for a lock, elect a leader and share a queue. A task is poison: no worker can handle it.")
	return d.events.await(ctx, protocol.EventDeadLettered, 1)
}

// busy has one worker ask for a lock that another one holds.
func (d *demo) busy(ctx context.Context) error {
	d.say("One worker tries to get a lock that another one holds.")
	lease, err := lock.New(d.workers[0].client, "/demo/maintenance").Lock(ctx)
	if err != nil {
		return err
	}
	if _, err = lock.New(d.workers[1].client, "/demo/maintenance").TryLock(ctx); errors.Is(err, lock.ErrLocked) {
		err = nil
	}
	return errors.Join(err, ignoreLoss(lease.Unlock(ctx)))
}

// ignoreLoss leaves out the errors of a session that is lost meanwhile, as on a busy machine.
func ignoreLoss(err error) error {
	if errors.Is(err, protocol.ErrLost) || errors.Is(err, protocol.ErrUncertain) {
		return nil
	}
	return err
}

// collision has one client take an entry of which another one has read in a listing.
func (d *demo) collision(ctx context.Context) error {
	d.say("Two clients want the same entry of a queue.")
	mine, theirs := queue.New(d.workers[0].client, "/demo/mail"), queue.New(d.workers[1].client, "/demo/mail")
	for ; ; d.say("They missed each other, and try again.") {
		before, _ := d.events.count(protocol.EventCollided)
		ids, err := mine.OfferAll(ctx, [][]byte{{1}, {2}, {3}})
		if ignoreLoss(err) != nil {
			return err
		} else if err != nil {
			continue
		}
		if _, err := mine.Take(ctx); ignoreLoss(err) != nil {
			return err
		}
		if err := theirs.Remove(ctx, ids[1]); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if _, err := mine.Take(ctx); ignoreLoss(err) != nil {
			return err
		}

		short, cancel := context.WithTimeout(ctx, time.Second)
		err = d.events.await(short, protocol.EventCollided, before+1)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// expiry ends the session of the leader, as if its machine had slept.
func (d *demo) expiry(ctx context.Context) error {
	losses, _ := d.events.count(protocol.EventLost)
	for {
		for _, w := range d.workers {
			if _, leads := w.leader.Leading(); !leads {
				continue
			}
			s, err := w.client.Session(ctx)
			if err != nil {
				return err
			}
			d.say("The servers end the session of %s, which leads.", w.name)
			d.server.ExpireSession(s.ID())
			return d.events.await(ctx, protocol.EventLost, losses+1)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// outage takes the servers away until the workers have lost what they held.
func (d *demo) outage(ctx context.Context) error {
	if err := d.awaitLeader(ctx); err != nil {
		return err
	}
	d.say("No server can be reached, until the leader has lost its term.")
	reports, _ := d.events.count(protocol.EventConnecting)
	losses, _ := d.events.count(protocol.EventLost)
	retries, _ := d.events.count(protocol.EventRetried)

	d.server.Stop()
	err := errors.Join(
		d.events.await(ctx, protocol.EventConnecting, reports+1),
		d.events.await(ctx, protocol.EventLost, losses+1),
	)
	if err := errors.Join(err, d.server.Resume()); err != nil {
		return err
	}

	d.say("The servers are back.")
	if err := d.events.await(ctx, protocol.EventRetried, retries+1); err != nil {
		return err
	}
	return d.awaitLeader(ctx)
}

func (d *demo) awaitLeader(ctx context.Context) error {
	for {
		for _, w := range d.workers {
			if _, leads := w.leader.Leading(); leads {
				return nil
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// told are the metrics that the demonstration has been about.
var told = regexp.MustCompile(`^zkrecipes_(hold_losses|queue|connection|session|request|wait_duration_seconds_count)`)

func (d *demo) summarize(page string) {
	d.say("The metrics say, among others:")
	for line := range strings.Lines(page) {
		if told.MatchString(line) {
			fmt.Fprint(d.out, "  ", line)
		}
	}
}

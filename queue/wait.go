package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Consumers that wait at an empty queue stand in a line, one for each session. The first two are
// its lookouts. A consumer that has found an entry leaves the line, and goes to its end when it
// waits again. So an offer wakes two consumers, and all get their turn.
//
// A lookout watches for the next number that an entry can have, and the register for entries that
// were released, and waits for entries with a delay. The first one also watches the other
// consumers, whose claims end with them.
const (
	lookouts    = 2
	waitingKind = "wait-"
)

// A place is a consumer's place in that line. The zero place has not been taken.
type place struct {
	cancel context.CancelFunc
	events chan event
	looked chan struct{} // to be closed when there was nothing; nil if it was told of nothing

	lookout *atomic.Bool
	unfit   bool // this consumer has met an entry that it cannot take, and others perhaps can
}

// An event is what a consumer in line is told of.
type event struct {
	kind   eventKind
	looked chan struct{} // closed when the consumer has looked in vain
}

type eventKind int

const (
	changed  eventKind = iota // there may be something to take
	arrived                   // an entry
	released                  // an entry that was reserved, or one was put back
	departed                  // a consumer may have left
	outdated                  // what was found reserved is to be read again
	expelled                  // another client has deleted the place
	failed                    // there is no place
)

// recheckAfter is how often the first lookout reads entries again that were found reserved. Claims
// that end are noticed at once, unless foreign clients delete them.
const recheckAfter = time.Minute

// leave leaves the line.
func (p *place) leave() {
	if p.cancel != nil {
		p.cancel()
	}
	*p = place{}
}

// waitForEntries waits until there may be something for the pending requests.
func (c *consumer) waitForEntries(life context.Context) {
	if c.place.unfit { // once for each such entry
		c.place.leave()
	}
	if c.place.cancel == nil {
		c.enter()
	}
	if c.place.looked != nil {
		close(c.place.looked)
		c.place.looked = nil
	}

	for {
		var due <-chan time.Time
		if at := c.window.nextDue(); !at.IsZero() && c.place.lookout.Load() {
			timer := time.NewTimer(max(time.Until(at), 1)) // see makeWay
			defer timer.Stop()
			due = timer.C
		}

		select {
		case e := <-c.place.events:
			c.place.looked = e.looked
			switch e.kind {
			case departed:
				if err := c.count(life); err == nil && !c.crowd.left { // they only came
					close(e.looked)
					c.place.looked = nil
					continue
				}
			case outdated:
				c.crowd.left = true // as far as we know
			case expelled:
				c.place.leave()
			case failed:
				c.place.leave()
				c.pause(life)
			}
		case <-due:
		case <-c.removals.Woken():
		case <-life.Done():
		}
		return
	}
}

// pause keeps a consumer that cannot stand in line from asking all the time.
func (c *consumer) pause(life context.Context) {
	timer := time.NewTimer(c.session.Timeout() / 3)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.removals.Woken():
	case <-life.Done():
	}
}

const looksNowAndThen = "waits without a place in line, and looks for entries from time to time only"

// enter takes a place at the end of the line.
func (c *consumer) enter() {
	events := make(chan event, 1)
	ctx, cancel := context.WithCancel(context.Background())
	lookout := new(atomic.Bool)
	c.place = place{cancel: cancel, events: events, lookout: lookout}
	c.session.Go(func(life context.Context) {
		defer context.AfterFunc(life, cancel)()
		err := c.stand(ctx, lookout, events)
		if err == nil || ctx.Err() != nil {
			return
		}
		c.warn(looksNowAndThen, err)
		c.report(protocol.EventRetried, 0, c.recipe.Wrap(fmt.Errorf("wait in line: %w", err)))
		tell(ctx, events, failed)
	})
}

// tell sends an event, and blocks until the consumer has looked in vain, or ctx ends. Until then
// nothing need be watched.
func tell(ctx context.Context, events chan<- event, kind eventKind) {
	e := event{kind, make(chan struct{})}
	select {
	case events <- e:
	case <-ctx.Done():
		return
	}
	select {
	case <-e.looked:
	case <-ctx.Done():
	}
}

// stand stands in line until ctx ends, and sends events once it is a lookout.
func (c *consumer) stand(ctx context.Context, lookout *atomic.Bool, events chan<- event) error {
	dir := c.path + waitingNode
	prefix := c.session.NewOwner().String() + "-" + waitingKind
	own, err := c.session.CreateOwn(ctx, protocol.OwnNode{Dir: dir, Prefix: prefix})
	if err != nil {
		return err
	}
	defer c.session.Go(func(life context.Context) { own.Withdraw(life) })

	for {
		children, _, err := c.session.Children(ctx, dir)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if !own.Among(children) {
			tell(ctx, events, expelled)
			return nil
		}
		waiting := inLine(children)
		self := slices.Index(waiting, own.Name())

		mine := c.session.Watch(dir + "/" + own.Name())
		watches := []*protocol.Watch{mine}
		for _, node := range waiting[max(0, self-lookouts):self] {
			watches = append(watches, c.session.Watch(dir+"/"+node))
		}
		gone := false
		for _, w := range watches {
			if _, err := w.Ready(ctx); errors.Is(err, zk.ErrNoNode) {
				gone = true
			} else if err != nil {
				return err
			}
		}
		if gone {
			continue
		}

		turn, cancel := context.WithCancel(ctx)
		if self < lookouts {
			lookout.Store(true) // of which the consumer learns with the first event
			c.session.Go(func(context.Context) { c.look(turn, self == 0, events) })
		}
		err = c.session.WaitAny(ctx, watches...)
		cancel()
		if err != nil {
			return err
		}
	}
}

// inLine returns the nodes of consumers that wait, in order. Other children are no consumers.
func inLine(children []string) []string {
	sequence := func(node string) (n int32, ok bool) {
		_, number, _ := strings.Cut(node, "-"+waitingKind)
		return protocol.ParseSequence(number)
	}
	waiting := slices.DeleteFunc(children, func(node string) bool { _, ok := sequence(node); return !ok })
	slices.SortFunc(waiting, func(a, b string) int {
		m, _ := sequence(a)
		n, _ := sequence(b)
		return cmp.Compare(m, n)
	})
	return waiting
}

// look looks out until ctx ends.
func (c *consumer) look(ctx context.Context, first bool, events chan<- event) {
	err := c.lookOut(ctx, first, events)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, zk.ErrNoNode): // the queue was deleted
		tell(ctx, events, changed)
	default:
		c.warn(looksNowAndThen, err)
		tell(ctx, events, failed)
	}
}

// An outlook is what a lookout watches, and what it has seen there.
type outlook struct {
	register  *protocol.Watch // where releases are told of
	next      *protocol.Watch // the next entry, or all if their names are not known beforehand
	consumers *protocol.Watch // nil unless this is the first lookout

	version int32 // of the register
	number  int32 // of the next entry
}

// lookOut sends an event whenever there may be something to take, until ctx ends. Each time it
// watches for the next one before it says so, or makes sure afterwards that it has missed nothing.
func (c *consumer) lookOut(ctx context.Context, first bool, events chan<- event) error {
	var recheck <-chan time.Time
	if first {
		ticker := time.NewTicker(recheckAfter)
		defer ticker.Stop()
		recheck = ticker.C
	}

	var seen outlook
	for kind := changed; ctx.Err() == nil; { // or else a watch would stay
		now, err := c.watchAll(ctx, seen.number, first)
		if err != nil {
			return err
		}
		switch {
		case now.version != seen.version, now.number != seen.number:
			tell(ctx, events, changed)
		case kind == departed:
			tell(ctx, events, departed)
		}

		seen = now
		waiting, cancel := context.WithCancel(ctx)
		select {
		case kind = <-now.change(waiting, c.session):
		case <-recheck:
			kind = outdated
		case <-ctx.Done():
		}
		cancel()
		if ctx.Err() != nil {
			break
		}
		switch kind {
		case arrived:
			tell(ctx, events, changed)
			seen.number++
		case released:
			tell(ctx, events, changed)
			seen.version++
		case outdated:
			tell(ctx, events, outdated)
		}
		if kind != departed {
			kind = changed
		}
	}
	return ctx.Err()
}

// watchAll watches all that a lookout does. number is that of the next entry, if it is known.
func (c *consumer) watchAll(ctx context.Context, number int32, first bool) (o outlook, err error) {
	o.register = c.session.Watch(c.records)
	if first {
		o.consumers = c.session.WatchChildren(c.records)
		if _, err := o.consumers.Ready(ctx); err != nil {
			return o, err
		}
	}
	stat, err := o.register.Ready(ctx)
	if err != nil {
		return o, err
	}
	o.version = stat.Version

	for ; ; o.number = number {
		if number > 0 {
			o.next = c.watchNext(number)
			if _, err := o.next.Ready(ctx); err != nil {
				return o, err
			}
		}
		queue, err := c.session.Exists(ctx, c.path)
		if err == nil && queue == nil {
			err = zk.ErrNoNode
		}
		if err != nil {
			return o, err
		}
		if n := nextNumber(queue); n != number { // it was not the next one any more
			number = n
			continue
		}
		o.number = number
		return o, nil
	}
}

// mostUnfired is how many watches on entries that never come a session may have at the server. Each
// number that goes to an entry with another name leaves one.
const mostUnfired = 100

// A forecast counts the watches on entries that have not come. It is safe for concurrent use.
type forecast struct {
	mu      sync.Mutex      // protects what follows
	node    string          // that is watched
	come    <-chan struct{} // closed when it has come
	unfired int
}

// watchNext watches for the next entry: by its name, or for any once too many have not come.
func (c *consumer) watchNext(number int32) *protocol.Watch {
	f := &c.forecast
	f.mu.Lock()
	defer f.mu.Unlock()

	node := c.nextEntry(number)
	if f.unfired >= mostUnfired {
		node = c.path
	}
	if f.come != nil && node != f.node {
		select {
		case <-f.come:
		default:
			f.unfired++
		}
	}
	next := c.session.WatchChildren(node)
	f.node, f.come = node, next.Changed()
	return next
}

// nextEntry returns the node of the entry with that number, or the queue's if entries may be called
// something else.
func (c *consumer) nextEntry(number int32) string {
	if c.priorities {
		return c.path
	}
	return fmt.Sprintf("%s/%s-"+protocol.SequenceFormat, c.path, plainPrefix, number)
}

// change returns a channel that receives what has changed first.
func (o *outlook) change(ctx context.Context, s *protocol.Session) <-chan eventKind {
	changes := make(chan eventKind, 3)
	for kind, w := range map[eventKind]*protocol.Watch{released: o.register, arrived: o.next, departed: o.consumers} {
		if w != nil {
			s.Go(func(context.Context) {
				if w.Wait(ctx) == nil {
					changes <- kind
				}
			})
		}
	}
	return changes
}

package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Kind is a kind of fault.
type Kind string

// These faults hit one client.
const (
	Cut          Kind = "cut"               // its connections are reset, and new connections are refused
	Stall        Kind = "stall"             // no packets pass, and neither side notices
	LostRequests Kind = "lost requests"     // no packets pass towards the server
	LostReplies  Kind = "lost replies"      // no packets pass towards the client
	LoseReply    Kind = "lose a reply"      // the answers to one or two executed requests are lost with the connection
	Slow         Kind = "slow network"      // latency of up to a quarter of a session timeout
	Resume       Kind = "second resume"     // another connection takes the session over for some time
	Expiry       Kind = "expiry"            // the server ends the session by force
	Pause        Kind = "pause"             // the process stands still
	Isolation    Kind = "no leader"         // its server has lost its leader: it answers pings and nothing else
	Lag          Kind = "lag"               // its follower lags behind the leader, by up to a session timeout
	Stale        Kind = "isolated follower" // its follower has lost the leader, and still answers reads and pings
	Deposed      Kind = "deposed leader"    // its follower believes it is the leader, and also answers syncs
	LateReports  Kind = "late reports"      // its follower reports its session late, by up to a third of a timeout
	Refusal      Kind = "refusal"           // up to four requests are answered with an error that asks to try again

	TornRequest Kind = "torn request" // the connection ends in the middle of a request
	TornReply   Kind = "torn reply"   // the connection ends in the middle of a reply or an event

	// Death ends a process of [World.Processes] for ever. A successor starts after Fault.Lasts.
	Death Kind = "death"

	// CutTwice cuts its connection at one of its packets, and again soon after it has connected
	// again. It goes on at the leader first, and then at its follower, which lags. Most draws aim
	// at the moments after it has created a node or has set its watches again.
	CutTwice Kind = "cut twice"
)

// These faults hit the server.
const (
	Drop      Kind = "drop all connections"
	Restart   Kind = "restart"              // of the whole ensemble: connections are refused, sessions are kept
	Reap      Kind = "reap"                 // containers that have become empty are deleted
	Deletion  Kind = "operator"             // an ephemeral node below World.Path, of any client, is deleted
	Uproot    Kind = "operator deletes all" // all ephemeral nodes below World.Path, and then all directories that are empty and have no data
	FastClock Kind = "fast clock"           // sessions end early, by up to a twelfth of their timeout
)

var clientKinds = []Kind{Cut, Stall, LostRequests, LostReplies, LoseReply, Slow, Resume, Expiry, Pause, Isolation, Lag, CutTwice, Stale, Deposed, LateReports, Refusal, TornRequest, TornReply, Death}

// allKinds are the kinds to draw from. A kind that is listed several times is drawn more often.
var allKinds = append(slices.Clone(clientKinds), Deletion, Uproot, Drop, Restart, Reap, FastClock, CutTwice, CutTwice)

// lasting are the kinds for which Fault.Lasts matters.
var lasting = []Kind{Cut, Stall, LostRequests, LostReplies, Slow, Resume, Pause, Isolation, Lag, CutTwice, Restart, Stale, Deposed, LateReports, Refusal, FastClock, Death}

// A Fault happens to one client, or to the server.
type Fault struct {
	At     time.Duration // since the world began
	Kind   Kind
	Client int // the first client is 1; 0 is the server
	Lasts  time.Duration
	pick   int    // a random number for choices within the fault
	index  int    // in the schedule
	aimed  bool   // it waits for a client that holds something
	done   string // what it did
}

// String describes the fault in one line.
func (f Fault) String() string {
	s := fmt.Sprintf("%9.6fs  %-9s  %s", f.At.Seconds(), f.victim(), f.Kind)
	if slices.Contains(lasting, f.Kind) {
		s += fmt.Sprintf(" for %v", f.Lasts.Round(time.Microsecond))
	}

	if f.done != "" {
		s += ": " + f.done
	}

	return s
}

func (f Fault) victim() string {
	if f.Client == 0 {
		return "server"
	}
	return fmt.Sprintf("client %d", f.Client)
}

// draw draws the schedule of faults. It doesn't depend on the numbers that the simulation has
// drawn.
func (w *World) draw(o options) []Fault {
	possible, clients := o.kinds, w.Alive()
	if !w.mortal() {
		possible = slices.DeleteFunc(slices.Clone(possible), func(k Kind) bool { return k == Death })
	}
	if len(possible) == 0 {
		return nil
	}

	r := w.random(1)
	kinds, slice := w.kinds(r, possible)
	n := r.IntN(9)
	if slice { // with many faults of a kind, a fault that waits for a holder can itself be hit
		n = 1 + r.IntN(4)
	}

	var all []Fault
	for range n {
		f := Fault{
			At:    w.Now() + upto(r, 6*w.Timeout>>r.IntN(3)), // most work is done early
			Kind:  kinds[r.IntN(len(kinds))],
			Lasts: w.spell(r),
			pick:  r.IntN(1 << 20),
		}
		if slice && r.IntN(2) == 0 {
			f.Lasts = w.Timeout + upto(r, 2*w.Timeout)
		}
		if f.Kind == CutTwice {
			f.At = w.Now() + (f.At-w.Now())/4 // it waits for a packet
		}
		victim := r.IntN(1 << 20)
		if slices.Contains(clientKinds, f.Kind) {
			if len(clients) == 0 {
				continue
			}
			f.Client = 1 + victim%len(clients)
			f.aimed = f.Kind != CutTwice && (r.IntN(2) == 0 || slice && r.IntN(2) == 0)
		}
		all = append(all, f)
	}

	slices.SortFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	for i := range all {
		all[i].index = i
	}

	all = o.plan.choose(all)
	for _, f := range all {
		w.drawn = append(w.drawn, f.Kind)
	}
	return all
}

// kinds returns the kinds to draw from. Every other seed is a slice: all its faults have one kind,
// and each kind has its turn. Of the other seeds, half have only a few kinds, because a few kinds
// get further than all of them together.
func (w *World) kinds(r *rand.Rand, all []Kind) (kinds []Kind, slice bool) {
	if w.seed%2 == 0 {
		var distinct []Kind
		for _, k := range all {
			if !slices.Contains(distinct, k) {
				distinct = append(distinct, k)
			}
		}
		i := int(w.seed / 2 % uint64(len(distinct)))
		return distinct[i : i+1], true
	}

	kinds = slices.Clone(all)
	if r.IntN(2) == 0 {
		r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		kinds = kinds[:min(len(kinds), 1+r.IntN(3))]
	}
	return kinds, false
}

func (w *World) spell(r *rand.Rand) time.Duration {
	most := []time.Duration{w.Timeout / 20, w.Timeout / 2, w.Timeout, 3 * w.Timeout}
	return upto(r, most[r.IntN(len(most))])
}

// strikeAll makes each fault begin at its time. It returns when all have ended, or ctx ends.
func (w *World) strikeAll(ctx context.Context, all []Fault) {
	var aimed sync.WaitGroup
	defer aimed.Wait()
	end := w.Now()
	for _, f := range all {
		if !sleep(ctx, f.At-w.Now()) {
			break
		}
		if f.aimed && w.held.hasHolders() {
			aimed.Go(func() { w.ambush(ctx, f) })
			continue
		}
		w.begin(ctx, f)
		end = max(end, w.Now(), w.Now()+f.Lasts)
	}

	sleep(ctx, end-w.Now())
}

// begin makes one fault begin, and notes that.
func (w *World) begin(ctx context.Context, f Fault) {
	var victim *Client
	if f.Client > 0 {
		victim = w.Alive()[f.Client-1]
	}
	s := strike{kind: f.Kind}
	s.turns, s.holds = w.held.of(victim)
	w.disturb(f)
	f.At = w.Now()
	f.done = w.strike(ctx, f)
	w.record.fault(f)
	w.held.mu.Lock()
	defer w.held.mu.Unlock()
	w.strikes = append(w.strikes, s)
}

// strike makes one fault begin. It returns what the fault did, unless its kind already says so.
func (w *World) strike(ctx context.Context, f Fault) (done string) {
	if f.Client == 0 {
		return w.strikeServer(ctx, f)
	}

	c := w.Alive()[f.Client-1]
	switch f.Kind {
	case Cut:
		c.Link.Cut()
	case Stall:
		c.Link.Stall()
	case LostRequests:
		c.Link.StallRequests()
	case LostReplies:
		c.Link.StallReplies()
	case Isolation:
		c.Link.Isolate()
	case Slow:
		c.Link.Delay(c.latency + time.Duration(f.pick)*w.Timeout/4/(1<<20))
		time.AfterFunc(f.Lasts, func() { c.Link.Delay(c.latency) })
		return ""
	case Lag:
		// The lag is mostly small, so that calls are answered before they end.
		part := float64(f.pick) / (1 << 20)
		behind := time.Duration(part * part * float64(w.Timeout))
		c.follower.Lag(behind)
		time.AfterFunc(f.Lasts, func() { c.follower.Lag(0) })
		return fmt.Sprintf("by %v", behind.Round(time.Microsecond))
	case Stale, Deposed:
		if f.Kind == Stale {
			c.follower.Isolate()
		} else {
			c.follower.Depose()
		}
		time.AfterFunc(f.Lasts, c.follower.Rejoin)
		return ""
	case LateReports:
		late := time.Duration(f.pick) * w.Timeout / 3 / (1 << 20)
		c.follower.Report(late)
		time.AfterFunc(f.Lasts, func() { c.follower.Report(0) })
		return fmt.Sprintf("by up to %v", late.Round(time.Microsecond))
	case Refusal:
		code, op := refusals[f.pick%len(refusals)], refused[f.pick/8%len(refused)]
		n := 1 + f.pick/128%4
		c.Link.Fail(op, "", int32(code), n)
		time.AfterFunc(f.Lasts, func() { c.Link.Fail(op, "", 0, 0) })
		return fmt.Sprintf("%d of %v: %v", n, op, code)
	case CutTwice:
		return c.cutTwice(f)
	case LoseReply:
		c.Link.LoseReply(recipestest.OpAny, 1+f.pick%2)
		return ""
	case TornRequest, TornReply:
		return c.tear(f)
	case Death:
		return w.die(c, f.pick%2 == 0, f.Lasts)
	case Resume:
		if err := c.resumeAgain(ctx, f.Lasts); err != nil {
			return err.Error()
		}
		return ""
	case Expiry:
		id := c.sessionID()
		if !w.Server.Embedded().ExpireSession(id) {
			return "no session"
		}
		w.forced.begun.note(bySession(id))
		w.forced.done.note(bySession(id))
		return fmt.Sprintf("session %#x", id)
	case Pause:
		c.standStill(f.Lasts)
		return ""
	}

	time.AfterFunc(f.Lasts, c.Link.Heal)
	return ""
}

func (w *World) strikeServer(ctx context.Context, f Fault) (done string) {
	e := w.Server.Embedded()
	switch f.Kind {
	case Drop:
		e.DropConnections()
	case Restart:
		e.Stop()
		time.AfterFunc(f.Lasts, func() { e.Resume() })
	case Reap:
		e.ReapContainers()
	case Deletion:
		return w.deleteOne(ctx, f.pick)
	case Uproot:
		return w.uproot(ctx)
	case FastClock:
		e.SetClockRate(1 + float64(f.pick)/11/(1<<20))
		time.AfterFunc(f.Lasts, func() { e.SetClockRate(1) })
	}

	return ""
}

// refusals are the errors after which a request can be sent again.
var refusals = []zkwire.Code{
	zkwire.CodeConnectionLoss, zkwire.CodeOperationTimeout, zkwire.CodeSessionMoved, zkwire.CodeThrottled,
}

// refused are the requests that a fault can refuse. (Servers never refuse to set watches again.)
var refused = []recipestest.Op{
	recipestest.OpCreate, recipestest.OpMulti, recipestest.OpDelete, recipestest.OpSetData, recipestest.OpSync,
	recipestest.OpExists, recipestest.OpGetData, recipestest.OpGetChildren,
}

// torn are the packets that a fault can tear. The last is only for replies.
var torn = []recipestest.Op{
	recipestest.OpAny, recipestest.OpAny, recipestest.OpMulti, recipestest.OpConnect, recipestest.OpEvent,
}

// tear ends a connection in the middle of a packet of some kind.
func (c *Client) tear(f Fault) (done string) {
	ops, bytes, do := torn, 1+f.pick/16%64, c.Link.TearReply
	if f.Kind == TornRequest {
		ops, do = torn[:4], c.Link.TearRequest
	}
	op := ops[f.pick%16%len(ops)]
	do(op, bytes)
	return fmt.Sprintf("%v after %d bytes", op, bytes)
}

// uproot deletes all ephemeral nodes, and then the directories that are empty.
func (w *World) uproot(ctx context.Context) (done string) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout/4)
	defer cancel()

	nodes, stats, err := w.ephemerals(ctx, w.Path)
	if err != nil {
		return err.Error()
	}
	s, err := w.Operator().Session(ctx)
	if err != nil {
		return err.Error()
	}

	for i, node := range nodes {
		w.delete(s.Conn(), node, stats[i])
	}
	for _, node := range nodes {
		w.deleteDirectories(s.Conn(), node)
	}

	return fmt.Sprintf("deletes %d nodes", len(nodes))
}

// deleteDirectories deletes the parent of a deleted node, and so on up to World.Path, as long as
// they have neither data nor children.
func (w *World) deleteDirectories(c *zk.Conn, deleted string) {
	for dir := path.Dir(deleted); strings.HasPrefix(dir, w.Path); dir = path.Dir(dir) {
		_, stat, err := c.Get(dir)
		if err != nil || stat.DataLength > 0 || c.Delete(dir, stat.Version) != nil {
			return
		}
	}
}

// deleteOne deletes an ephemeral node. In half of the draws it is a node of a client that holds
// something (if there is one).
func (w *World) deleteOne(ctx context.Context, pick int) (done string) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout/4)
	defer cancel()

	nodes, stats, err := w.ephemerals(ctx, w.Path)
	if err != nil || len(nodes) == 0 {
		return "no node to delete"
	}

	s, err := w.Operator().Session(ctx)
	if err != nil {
		return err.Error()
	}

	i := pick % len(nodes)
	if _, holds := w.held.of(nil); pick>>10%2 == 0 && len(holds) > 0 {
		token := holds[pick%len(holds)].token
		i = max(0, slices.IndexFunc(stats, func(s *zk.Stat) bool { return s.Czxid == token }))
	}
	if err := w.delete(s.Conn(), nodes[i], stats[i]); err != nil && err != zk.ErrNoNode {
		return err.Error()
	}

	return "deletes " + nodes[i]
}

// delete deletes a node, and notes that its holder was ended by force.
func (w *World) delete(c *zk.Conn, node string, stat *zk.Stat) error {
	keys := nodeKeys(node, stat.Czxid)
	w.forced.begun.note(keys...)
	w.forced.begun.note(heldThrough(c, node)...)
	err := c.Delete(node, -1)
	if err == nil {
		w.forced.done.note(keys...)
	}
	return err
}

// heldThrough returns the keys of the items that other consumers of a queue can take over once a
// consumer's node is deleted. Their holder notices that later.
func heldThrough(c *zk.Conn, node string) (keys []any) {
	records, owner, ok := strings.Cut(node, "/zkrecipes/consumers/")
	if !ok {
		return nil
	}
	dir := records + "/zkrecipes/held/" + owner
	held, _, _ := c.Children(dir)
	for _, child := range held {
		if there, stat, err := c.Exists(dir + "/" + child); err == nil && there {
			keys = append(keys, nodeKeys(child, stat.Czxid)...)
		}
	}

	return keys
}

// sleep blocks for d. If ctx ends first, it returns false. It never sets a timer that is due at
// once (see "Virtual time" in package recipestest).
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

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

// A strike is a fault that has happened. It names everything that its victim held.
type strike struct {
	kind  Kind
	holds []*hold
}

func (s strike) met() bool { return len(s.holds) > 0 }
func (s strike) cost() bool {
	return slices.ContainsFunc(s.holds, func(h *hold) bool { return h.lost })
}

// draw draws the schedule of faults. It doesn't depend on the numbers that the simulation has
// drawn.
func (w *World) draw(possible []Kind) []Fault {
	clients := w.Alive()
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
		// Draw it for every kind, so that the numbers after it don't depend on the kind.
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
	// Plans name faults by their index, so number them before choose removes some.
	for i := range all {
		all[i].index = i
	}

	all = w.plan.choose(all)
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

// strikeAll makes each fault begin at its time. It returns when all have ended or ctx ends.
func (w *World) strikeAll(ctx context.Context, all []Fault) {
	var aimed sync.WaitGroup
	defer aimed.Wait()
	end := w.Now()
	for _, f := range all {
		if !sleep(ctx, f.At-w.Now()) {
			break
		}
		// An aimed fault waits for its victim and must not hold up the others.
		if f.aimed && w.held.hasHolders() {
			aimed.Go(func() { w.ambush(ctx, f) })
			continue
		}
		w.begin(ctx, f)
		end = max(end, w.Now(), w.Now()+f.Lasts)
	}

	sleep(ctx, end-w.Now())
}

// begin makes one fault begin and records it.
func (w *World) begin(ctx context.Context, f Fault) {
	var victim *Client
	if f.Client > 0 {
		victim = w.Alive()[f.Client-1]
	}
	// See what the victim holds before the fault changes that.
	s := strike{f.Kind, w.held.of(victim)}
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
	part := float64(f.pick) / (1 << 20)
	end := c.Link.Heal
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
		c.Link.Delay(c.latency + time.Duration(part*float64(w.Timeout/4)))
		end = func() { c.Link.Delay(c.latency) }
	case Lag:
		// The lag is mostly small, so that calls are answered before they end.
		behind := time.Duration(part * part * float64(w.Timeout))
		c.follower.Lag(behind)
		end = func() { c.follower.Lag(0) }
		done = fmt.Sprintf("by %v", behind.Round(time.Microsecond))
	case Stale:
		c.follower.Isolate()
		end = c.follower.Rejoin
	case Deposed:
		c.follower.Depose()
		end = c.follower.Rejoin
	case LateReports:
		late := time.Duration(part * float64(w.Timeout/3))
		c.follower.Report(late)
		end = func() { c.follower.Report(0) }
		done = fmt.Sprintf("by up to %v", late.Round(time.Microsecond))
	case Refusal:
		code, op := refusals[f.pick%len(refusals)], refused[f.pick/8%len(refused)]
		n := 1 + f.pick/128%4
		c.Link.Fail(op, "", int32(code), n)
		end = func() { c.Link.Fail(op, "", 0, 0) }
		done = fmt.Sprintf("%d of %v: %v", n, op, code)
	case Pause:
		until := c.standStill(f.Lasts)
		end = func() { c.runOn(until) }
	case LoseReply:
		c.Link.LoseReply(recipestest.OpAny, 1+f.pick%2)
		f.Lasts, end = inTheEnd, func() { c.Link.LoseReply(recipestest.OpAny, 0) }
	case TornRequest:
		return c.tear(f.pick, c.Link.TearRequest, torn[:4])
	case TornReply:
		return c.tear(f.pick, c.Link.TearReply, torn)
	case CutTwice:
		return c.cutTwice(f)
	case Death:
		return w.die(c, f.pick%2 == 0, f.Lasts)
	case Resume:
		return text(c.resumeAgain(f.Lasts))
	case Expiry:
		return w.expire(c.sessionID())
	}

	w.endLater(f.Lasts, end)
	return done
}

func (w *World) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calmed
}

func (w *World) strikeServer(ctx context.Context, f Fault) (done string) {
	e := w.Server.Embedded()
	switch f.Kind {
	case Drop:
		e.DropConnections()
	case Restart:
		e.Stop()
		w.endLater(f.Lasts, func() {
			if err := e.Resume(); err != nil {
				w.bench.fail(err)
			}
		})
	case Reap:
		e.ReapContainers()
	case Deletion:
		return w.deleteOne(ctx, f.pick)
	case Uproot:
		return w.uproot(ctx)
	case FastClock:
		e.SetClockRate(1 + float64(f.pick)/11/(1<<20))
		w.endLater(f.Lasts, func() { e.SetClockRate(1) })
	}

	return ""
}

// inTheEnd is after all work.
const inTheEnd = 1000 * time.Hour

// endLater ends a fault after some time, or when the world calms down. It can call end twice.
func (w *World) endLater(after time.Duration, end func()) {
	w.mu.Lock()
	calmed := w.calmed
	w.ends = append(w.ends, end)
	w.mu.Unlock()
	if calmed {
		end()
	} else if after < inTheEnd {
		time.AfterFunc(after, end)
	}
}

// calm ends all faults. No more begin.
func (w *World) calm() {
	w.mu.Lock()
	w.calmed = true
	ends := slices.Clone(w.ends)
	w.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// text returns the text of an error, or nothing.
func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func (w *World) expire(session int64) (done string) {
	if !w.Server.Embedded().ExpireSession(session) {
		return "no session"
	}
	w.forced.begun.note(bySession(session))
	w.forced.done.note(bySession(session))
	return fmt.Sprintf("session %#x", session)
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
func (c *Client) tear(pick int, tear func(recipestest.Op, int), ops []recipestest.Op) (done string) {
	op, bytes := ops[pick%16%len(ops)], 1+pick/16%64
	tear(op, bytes)
	c.world.endLater(inTheEnd, func() { tear(op, 0) })
	return fmt.Sprintf("%v after %d bytes", op, bytes)
}

// uproot deletes all ephemeral nodes and then the directories that are empty.
func (w *World) uproot(ctx context.Context) (done string) {
	c, nodes, stats, err := w.ephemerals(ctx)
	if err != nil {
		return err.Error()
	}
	for i, node := range nodes {
		// A node that its client has deleted is no error.
		w.delete(c, node, stats[i])
	}
	for _, node := range nodes {
		w.deleteDirectories(c, node)
	}
	return fmt.Sprintf("deletes %d nodes", len(nodes))
}

// ephemerals returns the operator's connection, and the ephemeral nodes below World.Path.
func (w *World) ephemerals(ctx context.Context) (c *zk.Conn, nodes []string, stats []*zk.Stat, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout/4)
	defer cancel()
	s, err := w.Operator().Session(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	nodes, stats, err = ephemeralsBelow(s.Conn(), w.Path)
	return s.Conn(), nodes, stats, err
}

func ephemeralsBelow(c *zk.Conn, path string) (nodes []string, stats []*zk.Stat, err error) {
	names, stat, err := c.Children(path)
	if err != nil {
		return nil, nil, err
	}
	// An ephemeral node has no children.
	if stat.EphemeralOwner != 0 {
		return []string{path}, []*zk.Stat{stat}, nil
	}
	for _, name := range names {
		below, ss, err := ephemeralsBelow(c, path+"/"+name)
		if err != nil && err != zk.ErrNoNode {
			return nil, nil, err
		}
		nodes, stats = append(nodes, below...), append(stats, ss...)
	}
	return nodes, stats, nil
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
	c, nodes, stats, err := w.ephemerals(ctx)
	if err != nil || len(nodes) == 0 {
		return "no node to delete"
	}

	i := pick % len(nodes)
	holds := slices.DeleteFunc(w.held.of(nil), func(h *hold) bool { return !h.fromEvent() })
	if pick>>10%2 == 0 && len(holds) > 0 {
		// The token of a lock is the czxid of its node. If no node has it, take the first.
		token := holds[pick%len(holds)].token
		i = max(0, slices.IndexFunc(stats, func(s *zk.Stat) bool { return s.Czxid == token }))
	}
	if err := w.delete(c, nodes[i], stats[i]); err != nil && err != zk.ErrNoNode {
		return err.Error()
	}

	return "deletes " + nodes[i]
}

// delete deletes a node and records that its holder was ended by force.
func (w *World) delete(c *zk.Conn, node string, stat *zk.Stat) error {
	keys := nodeKeys(node, stat.Czxid)
	// Note this before the request: the holder may notice before the answer is here.
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

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Fault is something done to the ensemble, for a report.
type Fault struct {
	Kind      string
	Detail    string // what exactly, and to which members
	At, Until time.Time
	Err       error // it couldn't be done or undone
}

// kinds are all faults. A function keeps up its fault with injection.hold, and must undo it before
// it returns.
var kinds = func() map[string]func(*injection) error {
	all := make(map[string]func(*injection) error)
	for _, family := range []map[string]func(*injection) error{
		networkFaults, processFaults, diskFaults, dataFaults, clockFaults, reconfigFaults,
	} {
		maps.Copy(all, family)
	}
	return all
}()

// Kinds returns the kinds of faults that are possible here (sorted, without Beyond's).
func (c *Cluster) Kinds() []string {
	var here []string
	for kind := range kinds {
		if c.missing[kind] == "" && beyond[kind] == "" {
			here = append(here, kind)
		}
	}
	slices.Sort(here)
	return here
}

// Missing returns the kinds of faults that aren't possible here, and containers if they aren't,
// each with the reason.
func (c *Cluster) Missing() map[string]string { return maps.Clone(c.missing) }

// Beyond returns the kinds of faults that Kinds leaves out, each with the reason. (Mostly,
// ZooKeeper or the recipes don't promise to survive them.) Inject accepts them.
func (c *Cluster) Beyond() map[string]string { return maps.Clone(beyond) }

// Inject breaks the ensemble by a fault of this kind, with r for each choice. It keeps up the fault
// for about as long as lasts, or until ctx ends. Then it undoes the fault and returns. It doesn't
// wait until all members serve again (Heal does). clients is how many client processes there are.
//
// Faults may be injected at the same time. Network faults add up. A fault of members takes members
// that no other fault has. If there are too few, Inject does nothing and returns an error.
func (c *Cluster) Inject(ctx context.Context, kind string, r *rand.Rand, lasts time.Duration, clients int) Fault {
	f := Fault{Kind: kind, At: time.Now()}
	i := &injection{Cluster: c, ctx: ctx, r: r, lasts: lasts, clients: clients}

	do, ok := kinds[kind]
	switch {
	case !ok:
		f.Err = fmt.Errorf("cluster: there is no fault %q", kind)
	case c.missing[kind] != "":
		f.Err = fmt.Errorf("cluster: %s cannot be had here: %s", kind, c.missing[kind])
	default:
		f.Err = do(i)
		i.release()
	}

	f.Until, f.Detail = time.Now(), strings.Join(i.details, "; ")
	if f.Err != nil {
		f.Err = fmt.Errorf("cluster: %s: %w", kind, f.Err)
	}
	return f
}

// An injection is one fault while it lasts.
type injection struct {
	*Cluster
	ctx     context.Context
	r       *rand.Rand
	lasts   time.Duration
	clients int

	details []string
	claims  []*member
}

// say adds to the fault's details.
func (i *injection) say(format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	i.details = append(i.details, detail)
	i.config.Log("%s", detail)
}

// hold waits until the fault should end.
func (i *injection) hold() { i.sleep(i.lasts) }

func (i *injection) sleep(d time.Duration) {
	select {
	case <-i.ctx.Done():
	case <-time.After(d):
	}
}

// forAWhile calls step again and again while the fault lasts (at least once).
func (i *injection) forAWhile(step func() error) error {
	for end := time.Now().Add(i.lasts); ; {
		if err := step(); err != nil || i.ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}

// between returns a duration from low to high.
func (i *injection) between(low, high time.Duration) time.Duration {
	return low + time.Duration(i.r.Int64N(int64(high-low)))
}

var errClaimed = errors.New("another fault has too many of the members")

// claim takes n random members that no other fault has. They belong to this fault until it ends.
func (i *injection) claim(n int) ([]*member, error) {
	shuffled := slices.Clone(i.members)
	i.r.Shuffle(len(shuffled), func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })

	i.mu.Lock()
	defer i.mu.Unlock()
	free := slices.DeleteFunc(shuffled, func(m *member) bool { return m.claimed })
	if len(free) < n {
		return nil, errClaimed
	}
	return i.take(free[:n]), nil
}

// claimLeader takes the leader.
func (i *injection) claimLeader() (*member, error) {
	leader := i.leader()
	if leader == nil {
		return nil, errors.New("no member leads")
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	if leader.claimed {
		return nil, errClaimed
	}
	i.take([]*member{leader})
	return leader, nil
}

// take marks members as claimed. i.mu is held.
func (i *injection) take(members []*member) []*member {
	for _, m := range members {
		m.claimed = true
	}
	i.claims = append(i.claims, members...)
	return members
}

// release gives all claimed members back.
func (i *injection) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.claims {
		m.claimed = false
	}
	i.claims = nil
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

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
	// Keep the detail for the report, and log it now.
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

// during does begin to members, and does end to them when the fault should end (even if begin
// fails).
func (i *injection) during(members []*member, begin, end func(*member) error) error {
	err := each(members, begin)
	if err == nil {
		i.hold()
	}
	return errors.Join(err, each(members, end))
}

// await waits until step returns nil. It goes on after the fault's context has ended, so that the
// fault can be undone.
func (i *injection) await(step func() error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.ctx), launch.Timeout)
	defer cancel()
	return reach.Poll(ctx, step)
}

// awaitLeader waits until a member leads (and not the member not).
func (i *injection) awaitLeader(not *member) error {
	return i.await(func() error {
		if leader := i.leader(); leader == nil || leader == not {
			return errNoLeader
		}
		return nil
	})
}

// awaitServing waits until a member serves.
func (i *injection) awaitServing(m *member) error {
	return i.await(func() error {
		_, err := reach.AskReport(m.addr())
		return err
	})
}

var errClaimed = errors.New("another fault has too many of the members")

// claim takes n random members that no other fault has. They belong to this fault until it ends.
func (i *injection) claim(n int) ([]*member, error) {
	// Shuffle all members, so that this draws the same numbers whatever other faults have claimed.
	shuffled := slices.Clone(i.members)
	i.r.Shuffle(len(shuffled), func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
	return i.take(n, shuffled...)
}

var errNoLeader = errors.New("no member leads")

// theLeader takes the leader, and no other member.
func theLeader(i *injection) ([]*member, error) {
	leader := i.leader()
	if leader == nil {
		return nil, errNoLeader
	}
	return i.take(1, leader)
}

// take claims the first n of these members that no other fault has. (It changes the slice.)
func (i *injection) take(n int, members ...*member) ([]*member, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	free := slices.DeleteFunc(members, func(m *member) bool { return m.claimed })
	if len(free) < n {
		return nil, errClaimed
	}
	for _, m := range free[:n] {
		m.claimed = true
	}
	i.claims = append(i.claims, free[:n]...)
	return free[:n], nil
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

// on is a fault of members that it claims.
func on(claim func(*injection) ([]*member, error), do func(*injection, []*member) error) func(*injection) error {
	return func(i *injection) error {
		members, err := claim(i)
		if err != nil {
			return err
		}
		return do(i, members)
	}
}

func one(i *injection) ([]*member, error)       { return i.claim(1) }
func all(i *injection) ([]*member, error)       { return i.claim(len(i.members)) }
func some(i *injection) ([]*member, error)      { return i.claim(1 + i.r.IntN(len(i.members))) }
func aMinority(i *injection) ([]*member, error) { return i.claim(1 + i.r.IntN(i.minority())) }
func aMajority(i *injection) ([]*member, error) { return i.claim(len(i.members) - i.minority()) }

func oneOrAll(i *injection) ([]*member, error) {
	if i.r.IntN(2) == 0 {
		return one(i)
	}
	return all(i)
}

// A set has some members or clients, by their numbers.
type set map[int]bool

func (s set) list() []int { return slices.Sorted(maps.Keys(s)) }

// someMembers chooses n members.
func (i *injection) someMembers(n int) set {
	s := make(set)
	for _, at := range i.r.Perm(len(i.members))[:n] {
		s[i.members[at].id] = true
	}
	return s
}

// someClients chooses one client, or more, or all.
func (i *injection) someClients() set {
	s := make(set)
	if i.clients > 0 {
		for _, n := range i.r.Perm(i.clients)[:1+i.r.IntN(i.clients)] {
			s[n] = true
		}
	}
	return s
}

// keepHolders returns the clients that hold a lock, and makes them keep it.
func (i *injection) keepHolders() set {
	s := make(set)
	if i.aim != nil {
		holders := i.aim.Holders()
		for _, client := range holders {
			s[client] = true
		}
		i.aim.Keep(holders...)
	}
	return s
}

package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// A visit is one Enter, and the Leave that follows if it succeeds.
type visit struct {
	name      string
	err       error // of Enter
	node      string
	members   []string
	token     int64
	round     int64
	leave     error
	entered   time.Time // at the latest
	departing time.Time // at the earliest
	done      chan struct{}
}

// start visits the barrier. Ending enter ends Enter alone.
func (v *visit) start(enter, life context.Context, b *doublebarrier.Barrier, stay time.Duration) *visit {
	v.done = make(chan struct{})
	go func() {
		defer close(v.done)
		e, err := b.Enter(enter)
		v.entered = time.Now()
		if v.err = err; err != nil {
			return
		}
		v.node, v.members, v.token, v.round = e.Node(), e.Members(), e.Token(), e.Round()

		if stay > 0 {
			select {
			case <-time.After(stay):
			case <-e.Done():
			}
		}

		v.departing = time.Now()
		v.leave = e.Leave(life)
	}()
	return v
}

// withdrew reports whether Enter has promised that no round counts it.
func (v *visit) withdrew() bool {
	ended := errors.Is(v.err, context.Canceled) || errors.Is(v.err, context.DeadlineExceeded)
	return ended && !v.vague()
}

// vague reports whether it may have been counted though it has not entered.
func (v *visit) vague() bool {
	return errors.Is(v.err, protocol.ErrUncertain) || errors.Is(v.err, protocol.ErrLost)
}

// agree checks the rounds. Visits that one gate let in agree on the members, of which there are n,
// and on the number of the round. Later rounds have greater numbers, without gaps unless there are
// rounds that no visit has seen, or begin with 1 again when no member was there for a while.
// Each member has entered, or at least does not claim to have withdrawn. Beside the vague visits,
// up to so many ghosts may have been counted.
func agree(n int, visits []*visit, ghosts int) error {
	gates := make(map[int64][]string)
	nodes := make(map[string]int64)
	rounds := make(map[int64]int64)
	vague := ghosts
	for _, v := range visits {
		switch {
		case v.err == nil:
			members := gates[v.token]
			if members == nil {
				members = v.members
				gates[v.token] = members
			}
			if number, seen := rounds[v.token]; seen && number != v.round {
				return fmt.Errorf("%s is in round %d, others in %d", v.name, v.round, number)
			}
			rounds[v.token] = v.round
			if !slices.Equal(members, v.members) || len(members) != n || !slices.Contains(members, v.node) {
				return fmt.Errorf("%s is in with %v, others with %v", v.name, v.members, members)
			}
			if nodes[v.node] != 0 {
				return fmt.Errorf("%s entered twice as %s", v.name, v.node)
			}
			nodes[v.node] = v.token
		case v.vague():
			vague++
		}
	}

	tokens := slices.Sorted(maps.Keys(rounds))
	last := int64(0)
	for _, token := range tokens {
		number := rounds[token]
		if number != 1 && (number <= last || vague == 0 && number != last+1) {
			return fmt.Errorf("round %d comes after round %d", number, last)
		}
		last = number
	}

	counted := make(map[string]bool)
	for token, members := range gates {
		for _, m := range members {
			if counted[m] || nodes[m] != 0 && nodes[m] != token {
				return fmt.Errorf("%s was counted by two rounds", m)
			}
			if counted[m] = true; nodes[m] == 0 {
				vague--
			}
		}
	}

	if vague < 0 {
		return fmt.Errorf("%d were counted and have not entered, though no error says that they may be", -vague)
	}
	return nil
}

// An incident is what happens to the client behind link before one of its packets passes. Perhaps
// the ctx of the first member ends, too.
type incident struct {
	name    string
	cancels bool
	kills   bool // its session
	fault   func(srv *recipestest.Server, link *recipestest.Link, session int64)
}

func incidents() []incident {
	all := []incident{{"ctx ends", true, false, func(*recipestest.Server, *recipestest.Link, int64) {}}}
	for _, f := range suite.QuickFaults {
		if f.Name == "two lost replies" {
			continue
		}
		kills := f.Name == "expiry"
		all = append(all, incident{f.Name, false, kills, f.Do}, incident{f.Name + " and ctx ends", true, kills, f.Do})
	}
	return all
}

// At every packet of a member, or of another one, its client meets an incident.
func TestEitherAllEnterOrNone(t *testing.T) {
	for _, x := range incidents() {
		sizes := []int{2}
		if x.name == "ctx ends" || x.name == "expiry" {
			sizes = []int{2, 3}
		}
		for _, n := range sizes {
			sweep(t, x, n)
		}
	}
}

func TestEitherAllEnterOrNoneDuringLongFaults(t *testing.T) {
	for i, f := range suite.SlowFaults(10 * time.Second) {
		x := incident{f.Name, (i+i/4)%2 == 0, true, f.Do} // half of those of each kind and each length
		if x.cancels {
			x.name += " and ctx ends"
		}
		sweep(t, x, 2)
	}
}

// sweep runs in virtual time.
func sweep(t *testing.T, x incident, n int) {
	for _, last := range []bool{false, true} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%d/last=%v/own=%v", x.name, n, last, own), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					root := srv.Root(t)
					suite.Sweep(t, func(step int) bool {
						return meet(t, srv, fmt.Sprintf("%s/%d", root, step), x, n, last, own, step)
					})
				})
			})
		}
	}
}

func TestEitherAllEnterOrNoneOnARealServer(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	root := srv.Root(t)
	for _, x := range incidents() {
		if !x.cancels {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) bool {
				return meet(t, srv, pathOf(root, t.Name(), step), x, 2, step%2 == 0, true, step)
			})
		})
	}
}

func meet(t *testing.T, srv *recipestest.Server, path string, x incident, n int, last, own bool, step int) (met bool) {
	life, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	ctx, cancel := context.WithCancel(life)
	defer cancel()

	links := []*recipestest.Link{srv.Link(t), srv.Link(t)}
	cs := []*protocol.Client{links[0].Client(t), links[1].Client(t)}
	spare := srv.Client(t)
	for len(cs) < n {
		cs = append(cs, srv.Client(t))
	}
	defer suite.Close(t, append(cs, spare)...)
	session(t, spare)

	visits := make([]*visit, n)
	start := func(i int) {
		c := life
		if i == 0 {
			c = ctx
		}
		visits[i] = (&visit{name: fmt.Sprint(i)}).start(c, life, doublebarrier.New(cs[i], path, n, doublebarrier.WithWaiting()), 0)
	}

	victim := 1
	if own {
		victim = 0
	}
	id := session(t, cs[victim]).ID()

	over := suite.At(links[victim], step, func() {
		if x.cancels {
			cancel()
		}
		x.fault(srv, links[victim], id)
	})

	if !last {
		start(0)
	}
	for i := 1; i < n; i++ {
		start(i)
	}
	if last {
		// The others come to rest before, unless one of them meets its fault already.
		resting(t, spare, path, n-1)
		start(0)
	}

	first := slices.Clone(visits)
	began := time.Now()
	others := make(chan struct{})
	go func() {
		defer close(others)
		for _, v := range first[1:] {
			<-v.done
		}
	}()
	select {
	case <-first[0].done:
	case <-others: // a round has counted it, ended, and it waits for the next
		if !x.kills {
			<-first[0].done
		}
	}

	replace, giveUp := context.WithCancel(life)
	defer giveUp()
	var replacements group
	var mu sync.Mutex // protects visits
	if x.kills || first[0].err != nil {
		// One fewer than could enter without one of the first.
		b := doublebarrier.New(spare, path, n, doublebarrier.WithWaiting())
		for range n - 1 {
			replacements.Go(func() error {
				for replace.Err() == nil {
					v := (&visit{name: "replacement"}).start(replace, life, b, 0)
					<-v.done
					mu.Lock()
					visits = append(visits, v)
					mu.Unlock()
				}
				return nil
			})
		}
	}

	for _, v := range first {
		<-v.done
	}
	giveUp()
	require.NoError(t, replacements.Wait())

	met = over()
	where := fmt.Sprintf("step %d, after %v", step, time.Since(began))
	for _, l := range links {
		l.Heal()
	}

	ghosts := 0
	if x.kills && first[victim].err == nil { // it may have been counted before by a round that it has not seen
		ghosts = 1
	}
	require.NoError(t, agree(n, visits, ghosts), where)

	for i, v := range visits {
		if i == 0 && x.cancels && v.err != nil && !errors.Is(v.err, protocol.ErrLost) {
			require.ErrorIs(t, v.err, context.Canceled, where)
		} else if v.err != nil && i < n {
			require.ErrorIs(t, v.err, protocol.ErrLost, where)
		}
		if v.leave != nil {
			require.ErrorIs(t, v.leave, protocol.ErrLost, where)
		}
	}

	vanishes(t, spare, path)
	return met
}

// resting waits until so many have joined. It gives up after a while, as one of them may have met
// its fault.
func resting(t *testing.T, c *protocol.Client, path string, n int) {
	conn := session(t, c).Conn()
	for range 100 {
		children, _, _ := conn.Children(path + "/process")
		if len(children) == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// vanishes waits until nothing is left of any round.
func vanishes(t *testing.T, c *protocol.Client, path string) {
	t.Helper()
	conn := session(t, c).Conn()
	require.Eventually(t, func() bool {
		conn.Sync(path)
		there, _, err := conn.Exists(path + "/ready")
		children, _, _ := conn.Children(path + "/process")
		return err == nil && !there && len(children) == 0
	}, 2*suite.Limit, 2*time.Millisecond)
}

// All that is below the path vanishes, and the member joins again. At each packet of that, another
// one comes, and then ctx ends. The record may have the version that the old one had.
func TestEitherAllEnterOrNoneThoughTheVersionsBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			link, other := srv.Link(t), srv.Client(t)
			c := link.Client(t)
			defer suite.Close(t, c, other)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			first := (&visit{name: "first"}).start(ctx, t.Context(), doublebarrier.New(c, path, 2), 0)
			joined(t, other, path, 1)
			synctest.Wait()
			conn := session(t, other).Conn()
			data, _ := suite.Get(t, other, path+"/process")
			_, err := conn.Set(path+"/process", data, -1)
			require.NoError(t, err)
			synctest.Wait()

			second := &visit{name: "second"}
			met := suite.At(link, step, func() {
				second.start(ctx, t.Context(), doublebarrier.New(other, path, 2), 0)
				time.Sleep(10 * time.Millisecond)
				cancel()
			})
			wipe(t, conn, path+"/process")
			synctest.Wait()
			time.Sleep(20 * time.Millisecond)
			cancel()
			<-first.done
			was := met()
			visits := []*visit{first}
			if was {
				<-second.done
				visits = append(visits, second)
				if second.err == nil { // ctx does not end before the server's answer
					require.NoError(t, first.err, "step %d: the first was counted", step)
				}
			}
			require.NoError(t, agree(2, visits, 0), "step %d", step)
			return was
		})
	})
}

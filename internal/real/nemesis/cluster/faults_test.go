package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// A check shows that a fault takes hold. It begins the fault, waits for what the fault must do, and
// ends it.
type check func(*testing.T, *subject)

// checks has every kind of fault.
var checks = map[string]check{
	"partition-leader":   leaderFalls(nil),
	"partition-halves":   checkHalves,
	"partition-one-way":  leaderFalls(func(r rule, s *subject) bool { return !s.heard(r, s.leader()) }),
	"partition-bridge":   unsynced(leaderCut),
	"partition-ring":     unsynced(nil),
	"partition-total":    notServing(3),
	"partition-flapping": checkFlapping,
	"members-half-frame": unsynced(nil),
	"members-latency":    checkMembersLatency,

	"clients-cut":          clientsUnanswered,
	"clients-one-way":      clientsUnanswered,
	"clients-some-members": clientsUnanswered,
	"clients-split":        checkSplit,
	"clients-half-frame":   clientsUnanswered,
	"clients-latency":      checkClientsLatency,
	"clients-reset":        checkClientsReset,

	"kill-all":        dead(3),
	"kill-leader":     leaderFalls(nil),
	"kill-majority":   dead(2),
	"kill-minority":   dead(1),
	"pause-all":       stopped(3),
	"pause-leader":    leaderFalls(nil),
	"pause-minority":  stopped(1),
	"pause-flicker":   checkFlicker,
	"leader-changes":  checkLeaderChanges,
	"leader-deposed":  checkLeaderDeposed,
	"restart-rolling": checkRolling,

	"reconfig": checkReconfig,

	"disk-full":  checkDiskFull,
	"disk-slow":  checkDiskSlow,
	"data-lost":  checkDataLost,
	"amnesia":    checkAmnesia,
	"clock-jump": checkClockJump,
	"clock-rate": checkClockRate,

	"clock-fast":       checkClockFast,
	"amnesia-majority": checkAmnesiaMajority,
}

func TestEveryKindHasACheck(t *testing.T) {
	require.ElementsMatch(t, slices.Collect(maps.Keys(kinds)), slices.Collect(maps.Keys(checks)))
}

func TestFaultsBeyondThePromisesAreNotChosen(t *testing.T) {
	c := &Cluster{missing: map[string]string{"clock-jump": "no library"}}
	require.NotEmpty(t, c.Beyond())
	for kind := range c.Beyond() {
		require.Contains(t, kinds, kind)
		require.NotContains(t, c.Kinds(), kind)
	}
	require.NotContains(t, c.Kinds(), "clock-jump")
	require.Contains(t, c.Kinds(), "clock-rate")
}

// TestFaultsTakeHold runs all checks on one ensemble. After each fault, Heal must bring back an
// ensemble that accepts writes.
func TestFaultsTakeHold(t *testing.T) {
	s := start(t)
	t.Run("forgetting is refused while another member is away", func(t *testing.T) {
		s.write(t)
		s.checkForgettingIsRefused(t)
		s.heal(t)
	})

	for _, kind := range slices.Sorted(maps.Keys(checks)) {
		t.Run(kind, func(t *testing.T) {
			if why := s.Missing()[kind]; why != "" {
				unavailable(t, errors.New(why))
			}
			s.kind, s.config.Log = kind, t.Logf
			begin := time.Now()
			checks[kind](t, s)
			s.heal(t)
			t.Logf("after %v", time.Since(begin).Round(100*time.Millisecond))
			s.config.Log = func(string, ...any) {}
		})
	}
}

// A member that forgets while another is away could take a committed write with it.
func (s *subject) checkForgettingIsRefused(t *testing.T) {
	s.grace = time.Second
	defer func() { s.grace = time.Minute }()
	require.NoError(t, s.members[0].kill())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.members[0].claimed = true
	for _, kind := range []string{"data-lost", "amnesia"} {
		f := s.Inject(ctx, kind, random(1), time.Minute, clients)
		require.ErrorContains(t, f.Err, "may not forget now")
		require.Zero(t, s.count("[ ! -e data/version-2 ]"))
	}
	s.members[0].claimed = false
}

func unavailable(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		t.Fatalf("ZKRECIPES_REQUIRE_REAL=1, but %v", err)
	}
	t.Skip(err)
}

// A subject is an ensemble under test, with four clients.
type subject struct {
	*Cluster
	kind string // of the fault that is tested
	conn *zk.Conn
}

const clients = 4

func start(t *testing.T) *subject {
	t.Helper()
	if testing.Short() || os.Getenv("ZKRECIPES_REAL") == "0" {
		unavailable(t, errors.New("real servers are left out"))
	}

	ctx, cancel := context.WithTimeout(t.Context(), launch.Timeout)
	defer cancel()
	c, err := Start(ctx, Config{Members: 3, Dir: cmp.Or(os.Getenv("NEMC_DIR"), t.TempDir()), Log: t.Logf})
	if errors.Is(err, launch.ErrUnavailable) {
		unavailable(t, err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })

	var addrs []string
	for _, m := range c.members {
		addrs = append(addrs, m.addr())
	}
	conn, _, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(silence{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return &subject{Cluster: c, conn: conn}
}

// heal heals the ensemble and writes something.
func (s *subject) heal(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), launch.Timeout)
	defer cancel()
	require.NoError(t, s.Heal(ctx))
	s.write(t)
	for client := range clients {
		for at := range s.members {
			s.await(t, func() error { // a slow member may not answer in time
				answer, err := s.ask(t, client, at)
				if !strings.Contains(answer, "Mode:") {
					return fmt.Errorf("client %d, member %d: %q, %v", client, at+1, answer, err)
				}
				return nil
			})
		}
	}
}

// write creates a node. It tries again for as long as the connection fails.
func (s *subject) write(t *testing.T) string {
	t.Helper()
	var path string
	s.await(t, func() (err error) {
		path, err = s.conn.Create("/node-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		return err
	})
	return path
}

// await polls until condition returns nil.
func (s *subject) await(t *testing.T, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), launch.Timeout)
	defer cancel()
	require.NoError(t, launch.Poll(ctx, condition))
}

// inject begins the fault. end ends it and returns it.
func (s *subject) inject(t *testing.T, seed uint64) (end func() Fault) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Fault, 1)
	go func() { done <- s.Inject(ctx, s.kind, random(seed), 10*time.Minute, clients) }()
	ended := false
	end = func() Fault {
		cancel()
		f := <-done
		ended = true
		require.NoError(t, f.Err)
		require.Equal(t, s.kind, f.Kind)
		require.NotEmpty(t, f.Detail)
		return f
	}
	t.Cleanup(func() {
		if !ended {
			cancel()
			<-done
		}
	})
	return end
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// seed returns a seed with which a choice is as wanted. choose makes the choice as the fault does.
func (s *subject) seed(choose func(*injection) bool) uint64 {
	for seed := uint64(0); ; seed++ {
		i := &injection{Cluster: s.Cluster, ctx: context.Background(), r: random(seed), clients: clients}
		wanted := choose(i)
		i.release()
		if wanted {
			return seed
		}
	}
}

// ruleWanted returns a seed whose rule is as wanted.
func (s *subject) ruleWanted(shape shape, wanted func(rule, *subject) bool) uint64 {
	return s.seed(func(i *injection) bool {
		r, err := shape(i)
		return err == nil && (wanted == nil || wanted(r, s))
	})
}

var shapes = map[string]shape{
	"partition-one-way":    cutOneWay,
	"partition-bridge":     cutAllButBridge,
	"members-half-frame":   halveMembers,
	"clients-cut":          cutClients,
	"clients-one-way":      cutClientsOneWay,
	"clients-some-members": cutClientsFromSome,
	"clients-half-frame":   halveClients,
}

// heard reports whether a member is heard by any other under a rule.
func (s *subject) heard(r rule, m *member) bool {
	return slices.ContainsFunc(s.others(m), func(o *member) bool { return r(m.end(), o.end()) == launch.Traffic{} })
}

// leaderCut reports whether a rule cuts the leader from any other member.
func leaderCut(r rule, s *subject) bool {
	leader := s.leader()
	return slices.ContainsFunc(s.others(leader), func(o *member) bool { return r(leader.end(), o.end()) != launch.Traffic{} })
}

// begin begins the fault with a seed whose rule is as wanted.
func (s *subject) begin(t *testing.T, wanted func(rule, *subject) bool) (end func() Fault) {
	t.Helper()
	seed := uint64(1)
	if shape := shapes[s.kind]; shape != nil {
		seed = s.ruleWanted(shape, wanted)
	}
	return s.inject(t, seed)
}

// leaderFalls expects another leader.
func leaderFalls(wanted func(rule, *subject) bool) check {
	return func(t *testing.T, s *subject) {
		before := s.leader()
		end := s.begin(t, wanted)
		s.await(t, func() error {
			if now := s.leader(); now == nil || now == before {
				return errors.New("no other member leads")
			}
			return nil
		})
		end()
	}
}

// unsynced expects that not all members follow one leader any longer.
func unsynced(wanted func(rule, *subject) bool) check {
	return func(t *testing.T, s *subject) {
		end := s.begin(t, wanted)
		s.await(t, func() error {
			if s.unsynced(s.members) == nil {
				return errors.New("all members are synced")
			}
			return nil
		})
		end()
	}
}

// notServing expects that as many members do not serve.
func notServing(n int) check {
	return func(t *testing.T, s *subject) {
		end := s.begin(t, nil)
		s.await(t, func() error {
			if serving := len(s.reports()); serving > len(s.members)-n {
				return fmt.Errorf("%d members serve", serving)
			}
			return nil
		})
		end()
	}
}

func checkHalves(t *testing.T, s *subject) { notServing(1)(t, s) }

func checkFlapping(t *testing.T, s *subject) {
	end := s.inject(t, 1)
	for range 2 {
		for _, cut := range []bool{true, false} {
			s.await(t, func() error {
				stalled := false
				for _, m := range s.members {
					for _, o := range s.others(m) {
						stalled = stalled || s.traffic(m.end(), o.end()).Stalled
					}
				}
				if stalled != cut {
					return fmt.Errorf("a link is stalled: %t", stalled)
				}
				return nil
			})
		}
	}
	end()
}

// traffic is what the rules of the network say now.
func (s *subject) traffic(from, to end) launch.Traffic {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	return s.network.traffic(from, to)
}

// took returns the shortest time of some tries.
func took(t *testing.T, do func() error) time.Duration {
	t.Helper()
	shortest := time.Hour
	for range 3 {
		begin := time.Now()
		require.NoError(t, do())
		shortest = min(shortest, time.Since(begin))
	}
	return shortest
}

// awaitSlow waits until a write takes longer than limit.
func (s *subject) awaitSlow(t *testing.T, limit time.Duration) {
	t.Helper()
	s.await(t, func() error {
		if d := took(t, func() error { s.write(t); return nil }); d < limit {
			return fmt.Errorf("a write took %v", d)
		}
		return nil
	})
}

func checkMembersLatency(t *testing.T, s *subject) {
	end := s.inject(t, s.seed(func(i *injection) bool {
		r, _ := delayMembers(i)
		return r(s.leader().end(), s.others(s.leader())[0].end()).Delay > 100*time.Millisecond
	}))
	s.awaitSlow(t, 100*time.Millisecond)
	end()
}

// ask sends a four-letter word to a member over a link of a client. It returns what arrived.
func (s *subject) ask(t *testing.T, client, at int) (string, error) {
	t.Helper()
	addrs, err := s.Connect(client)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", strings.Split(addrs, ",")[at])
	if err != nil {
		return "", err
	}
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Second)))
	_, _ = io.WriteString(conn, "srvr")
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// clientsUnanswered expects that no answer comes over links whose traffic is not whole, and that
// answers come over the others.
func clientsUnanswered(t *testing.T, s *subject) {
	end := s.begin(t, func(r rule, s *subject) bool { // some, but not all
		cut := 0
		for client := range clients {
			if r(end{client: true, n: client}, end{n: 1}) != (launch.Traffic{}) || r(end{n: 1}, end{client: true, n: client}) != (launch.Traffic{}) {
				cut++
			}
		}
		return cut > 0 && cut < clients
	})
	s.expectAnswers(t)
	end()
}

func (s *subject) expectAnswers(t *testing.T) {
	t.Helper()
	s.await(t, func() error {
		s.network.mu.Lock()
		defer s.network.mu.Unlock()
		if len(s.network.rules) == 0 {
			return errors.New("there is no rule")
		}
		return nil
	})

	for client := range clients {
		for at, m := range s.members {
			from := end{client: true, n: client}
			whole := s.traffic(from, m.end()) == launch.Traffic{} && s.traffic(m.end(), from) == launch.Traffic{}
			ask := func() error {
				answer, err := s.ask(t, client, at)
				if !strings.Contains(answer, "\nNode count:") && !strings.Contains(answer, "not currently serving") {
					return fmt.Errorf("client %d, %v: %q, %v", client, m, answer, err)
				}
				return nil
			}
			if whole {
				s.await(t, ask) // a slow member may not answer in time
			} else {
				require.Error(t, ask(), "client %d, %v", client, m)
			}
		}
	}
}

// checkSplit also expects a leader that loses its term, and one among the others.
func checkSplit(t *testing.T, s *subject) {
	before := s.leader()
	end := s.inject(t, s.ruleWanted(splitBrain, func(r rule, s *subject) bool {
		return s.mixed(r)
	}))
	s.expectAnswers(t)
	s.await(t, func() error {
		if now := s.leader(); now == nil || now == before {
			return errors.New("no other member leads")
		}
		return nil
	})
	end()
}

// mixed reports whether a rule cuts some clients, but not all, from the leader.
func (s *subject) mixed(r rule) bool {
	cut := 0
	for client := range clients {
		if r(end{client: true, n: client}, s.leader().end()).Stalled {
			cut++
		}
	}
	return cut > 0 && cut < clients
}

func checkClientsLatency(t *testing.T, s *subject) {
	end := s.inject(t, s.seed(func(i *injection) bool {
		r, _ := delayClients(i)
		return r(end{client: true}, end{n: 1}).Delay > 100*time.Millisecond
	}))
	s.await(t, func() error {
		if d := took(t, func() error { _, err := s.ask(t, 0, 0); return err }); d < 200*time.Millisecond {
			return fmt.Errorf("an answer took %v", d)
		}
		return nil
	})
	end()
}

func checkClientsReset(t *testing.T, s *subject) {
	end := s.inject(t, s.seed(func(i *injection) bool { return i.someClients()[0] }))
	addrs, err := s.Connect(0)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", strings.Split(addrs, ",")[0])
	if err == nil { // else the reset was faster than Dial
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	end()
}

// dead expects that as many processes, or more, have ended.
func dead(n int) check { return processes(n, `! kill -0 "$server"`) }

// stopped expects that as many processes, or more, are stopped.
func stopped(n int) check { return processes(n, `grep -q '^State:.T' /proc/$server/status`) }

func processes(n int, code string) check {
	return func(t *testing.T, s *subject) {
		require.Zero(t, s.count(code))
		end := s.begin(t, nil)
		s.await(t, func() error {
			if got := s.count(code); got < n {
				return fmt.Errorf("%d members of %d", got, n)
			}
			return nil
		})
		end()
	}
}

// count returns for how many members some shell code succeeds.
func (s *subject) count(code string) int {
	n := 0
	for _, m := range s.members {
		if m.shell("%s", code) == nil {
			n++
		}
	}
	return n
}

func checkFlicker(t *testing.T, s *subject) {
	end := s.inject(t, 1)
	for range 2 {
		for want := range 2 {
			s.await(t, func() error {
				if got := s.count(`grep -q '^State:.T' /proc/$server/status`); got != want {
					return fmt.Errorf("%d are stopped", got)
				}
				return nil
			})
		}
	}
	end()
}

func checkLeaderChanges(t *testing.T, s *subject) {
	epoch := func() uint64 {
		if leader := s.leader(); leader != nil {
			return s.reports()[leader].Epoch()
		}
		return 0
	}
	before := epoch()
	end := s.inject(t, 1)
	s.await(t, func() error {
		if now := epoch(); now < before+2 {
			return fmt.Errorf("epoch %d", now)
		}
		return nil
	})
	end()
}

func checkLeaderDeposed(t *testing.T, s *subject) {
	before := s.leader()
	s.inject(t, 1)() // goes on until another member leads
	require.NotSame(t, before, s.leader())
	s.heal(t)

	// Both lead until the first one notices, after 5 s. On a busy machine the other one may not be
	// elected by then.
	const attempts = 5
	for n := 1; !s.deposes(t); n++ {
		require.Less(t, n, attempts)
		s.heal(t)
	}
}

// deposes reports whether two members lead at some moment of the fault.
func (s *subject) deposes(t *testing.T) bool {
	t.Helper()
	before, both := s.leader(), false
	end := s.inject(t, 1)
	s.await(t, func() error {
		var leaders []*member
		for m, r := range s.reports() {
			if r.Leads() {
				leaders = append(leaders, m)
			}
		}
		both = len(leaders) == 2
		if !both && (len(leaders) == 0 || leaders[0] == before) {
			return errors.New("no other member leads")
		}
		return nil
	})
	end()
	return both
}

func checkRolling(t *testing.T, s *subject) {
	require.Equal(t, 3, s.count("echo $server >before"))
	f := s.Inject(t.Context(), s.kind, random(1), time.Second, clients)
	require.NoError(t, f.Err)
	require.Zero(t, s.count(`[ "$(cat before)" = $server ]`))
}

// checkReconfig removes members that follow and lead, and that are shut down and go on. Each is a
// member again as soon as the fault is over.
func checkReconfig(t *testing.T, s *subject) {
	for n := range 4 {
		leads, shutDown := n < 2, n%2 == 0
		leader := s.leader()
		end := s.inject(t, s.seed(func(i *injection) bool {
			all, err := i.claim(len(i.members))
			i.r.IntN(i.minority())
			return err == nil && (all[0] == leader) == leads && (i.r.IntN(2) == 0) == shutDown
		}))
		s.awaitVoters(t, 2)
		if shutDown {
			s.await(t, func() error {
				if serving := len(s.reports()); serving != 2 {
					return fmt.Errorf("%d members serve", serving)
				}
				return nil
			})
		}
		s.write(t)
		end()
		for _, m := range s.members {
			var voters []int
			s.await(t, func() (err error) { // a slow member may not answer in time
				voters, err = m.voters()
				return err
			})
			require.Equal(t, ids(s.members), voters, m)
		}
		s.heal(t)
	}

	// Heal adds a member that a fault could not add again.
	removed := s.others(s.leader())[0]
	require.NoError(t, s.configure(s.others(removed)))
	require.NoError(t, removed.leave(s.others(removed)))
	s.awaitVoters(t, 2)
	s.heal(t)
	s.awaitVoters(t, 3)
}

// awaitVoters waits until the leader has as many members that vote.
func (s *subject) awaitVoters(t *testing.T, n int) {
	t.Helper()
	s.await(t, func() error {
		leader := s.leader()
		if leader == nil {
			return errors.New("no member leads")
		}
		voters, err := leader.voters()
		if err == nil && len(voters) != n {
			err = fmt.Errorf("members %v vote", voters)
		}
		return err
	})
}

func (s *subject) logs(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	for _, m := range s.members {
		require.NoError(t, m.server.CopyLog(&all))
	}
	return all.String()
}

func checkDiskFull(t *testing.T, s *subject) {
	const message = "No space left on device"
	require.NotContains(t, s.logs(t), message)
	end := s.inject(t, 1)
	s.await(t, func() error {
		s.write(t)
		if !strings.Contains(s.logs(t), message) {
			return errors.New("no write has failed")
		}
		return nil
	})
	end()

	m := s.members[0]
	require.NoError(t, m.kill())
	require.NoError(t, m.shell("touch data/version-2/log.fffffffff")) // as a full disk may leave it
	s.heal(t)
}

func checkDiskSlow(t *testing.T, s *subject) {
	var delay time.Duration
	end := s.inject(t, s.seed(func(i *injection) bool {
		n := 1 + i.r.IntN(3)
		_, err := i.claim(n)
		delay = i.between(50*time.Millisecond, time.Second)
		return err == nil && n >= 2 && delay > 200*time.Millisecond && delay < 400*time.Millisecond
	}))
	s.awaitSlow(t, delay)
	end()
}

// synced returns the zxids that members had when a leader began to sync them, as the logs have it.
func (s *subject) synced(t *testing.T) []uint64 {
	var zxids []uint64
	for line := range strings.Lines(s.logs(t)) {
		if _, rest, ok := strings.Cut(line, "peerLastZxid=0x"); ok {
			hex, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			zxid, err := strconv.ParseUint(hex, 16, 64)
			require.NoError(t, err, line)
			zxids = append(zxids, zxid)
		}
	}
	return zxids
}

func (s *subject) zxid() uint64 {
	var zxid uint64
	for _, r := range s.reports() {
		zxid = max(zxid, r.Zxid)
	}
	return zxid
}

func checkDataLost(t *testing.T, s *subject) {
	s.write(t)
	known := len(s.synced(t))
	end := s.inject(t, 1)
	s.await(t, func() error {
		if s.count("[ ! -e data/version-2 ]") != 1 {
			return errors.New("no member has lost its data")
		}
		return nil
	})
	end()
	s.heal(t)
	require.Contains(t, s.synced(t)[known:], uint64(0))
}

func checkAmnesia(t *testing.T, s *subject) {
	s.write(t)
	end := s.inject(t, 1)
	s.awaitCopies(t, 1)
	copied := s.zxid()
	s.write(t)
	s.write(t)
	known := len(s.synced(t))
	end()
	s.heal(t)

	back := slices.Min(s.synced(t)[known:])
	require.LessOrEqual(t, back, copied)
	require.NotZero(t, back)
}

// awaitCopies waits until n members have a copy of their data.
func (s *subject) awaitCopies(t *testing.T, n int) {
	t.Helper()
	s.await(t, func() error {
		if got := s.count(`[ -e old ] && ! grep -q '^State:.T' /proc/$server/status`); got != n {
			return fmt.Errorf("%d copies", got)
		}
		return nil
	})
}

// checkAmnesiaMajority shows why this kind is not one of Kinds.
func checkAmnesiaMajority(t *testing.T, s *subject) {
	s.write(t)
	end := s.inject(t, 1)
	s.awaitCopies(t, 2)
	var paths []string
	for range 10 {
		paths = append(paths, s.write(t))
	}
	end()
	s.heal(t)

	lost := 0
	for _, path := range paths {
		exists, _, err := s.conn.Exists(path)
		require.NoError(t, err)
		if !exists {
			lost++
		}
	}
	t.Logf("%d of %d committed writes are lost", lost, len(paths))
	require.NotZero(t, lost)
}

// all returns a seed with which a clock fault is of all members.
func (s *subject) all(before func(*injection) bool) uint64 {
	return s.seed(func(i *injection) bool {
		ok := before(i)
		members, err := i.oneOrAll()
		return ok && err == nil && len(members) == len(s.members)
	})
}

func checkClockJump(t *testing.T, s *subject) {
	end := s.inject(t, s.all(func(*injection) bool { return true }))
	s.await(t, func() error {
		_, stat, err := s.conn.Get(s.write(t))
		if err != nil {
			return err
		}
		if off := time.Since(time.UnixMilli(stat.Ctime)); off.Abs() < time.Hour {
			return fmt.Errorf("the clock is off by %v", off)
		}
		return nil
	})
	end()
}

// clock returns for how long the first member has run, by its monotonic clock. 3.4 does not tell
// that. Its leader's wall clock runs at the same rate.
func (s *subject) clock(t *testing.T) (time.Duration, error) {
	answer, err := launch.Ask(s.members[0].addr(), "mntr")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(answer) {
		if value, ok := strings.CutPrefix(line, "zk_uptime\t"); ok {
			ms, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return time.Duration(ms) * time.Millisecond, err
		}
	}

	_, stat, err := s.conn.Get(s.write(t))
	if err != nil {
		return 0, err
	}
	return time.Duration(stat.Ctime) * time.Millisecond, nil
}

// rate returns bounds of the rate of that clock.
func (s *subject) rate(t *testing.T) (low, high float64, err error) {
	a := time.Now()
	first, err := s.clock(t)
	if err != nil {
		return 0, 0, err
	}
	b := time.Now()
	time.Sleep(time.Second)
	c := time.Now()
	second, err := s.clock(t)
	if err != nil {
		return 0, 0, err
	}
	d := time.Now()
	passed := float64(second - first)
	return passed / float64(d.Sub(a)), passed / float64(c.Sub(b)), nil
}

func checkClockRate(t *testing.T, s *subject) {
	end := s.inject(t, s.seed(func(i *injection) bool {
		i.r.Float64()
		slow := i.r.IntN(2) == 0
		rate := i.r.Float64()
		if !slow || rate > 0.2 {
			return false
		}
		members, err := i.oneOrAll()
		return err == nil && len(members) == len(s.members)
	}))
	s.await(t, func() error {
		low, _, err := s.rate(t)
		if err == nil && (low > 0.7 || low < 0.1) {
			err = fmt.Errorf("the clock runs at %.2f", low)
		}
		return err
	})
	end()
}

func checkClockFast(t *testing.T, s *subject) {
	end := s.inject(t, 1)
	s.await(t, func() error {
		_, high, err := s.rate(t)
		if err == nil && high < 1.7 {
			err = fmt.Errorf("the clock runs at %.2f", high)
		}
		return err
	})
	end()
}

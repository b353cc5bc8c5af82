package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
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

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A check shows that a fault takes hold. It begins the fault, waits for what the fault must do, and
// ends it.
type check func(*testing.T, *subject)

// checks has every kind of fault.
var checks = map[string]check{
	"partition-leader":   leaderFalls(nil),
	"partition-halves":   notServing(1),
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
}

func TestEveryKindHasACheck(t *testing.T) {
	require.ElementsMatch(t, slices.Collect(maps.Keys(kinds)), slices.Collect(maps.Keys(checks)))
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
			if why := s.missing[kind]; why != "" {
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
	// One member is away, and no fault may choose it.
	require.NoError(t, s.members[0].kill())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.members[0].claimed = true
	// The other members may not forget, and they keep their data.
	for _, kind := range []string{"data-lost", "amnesia"} {
		require.ErrorContains(t, suite.Err(s.Inject(ctx, kind, random(1), time.Minute, clients)), "may not forget now")
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

	// This connection goes around the links, so no fault of clients affects it.
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
	require.NoError(t, reach.Poll(ctx, condition))
}

// inject begins the fault. end ends it.
func (s *subject) inject(t *testing.T, seed uint64) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var detail string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		detail, err = s.Inject(ctx, s.kind, random(seed), 10*time.Minute, clients)
	}()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return func() {
		stop()
		require.NoError(t, err)
		require.NotEmpty(t, detail)
	}
}

// during begins the fault, waits until condition returns nil, and ends the fault.
func (s *subject) during(t *testing.T, seed uint64, condition func() error) {
	t.Helper()
	end := s.inject(t, seed)
	s.await(t, condition)
	end()
}

// anotherLeads returns a condition: a member leads, and not this one.
func (s *subject) anotherLeads(before *member) func() error {
	return func() error {
		if now := s.leader(); now == nil || now == before {
			return errors.New("no other member leads")
		}
		return nil
	}
}

// served returns a condition: at most n members serve.
func (s *subject) served(n int) func() error {
	return func() error {
		if serving := len(s.reports()); serving > n {
			return fmt.Errorf("%d members serve", serving)
		}
		return nil
	}
}

// counted returns a condition: some shell code succeeds for n members, or more.
func (s *subject) counted(code string, n int) func() error {
	return func() error {
		if got := s.count(code); got < n {
			return fmt.Errorf("%d members of %d", got, n)
		}
		return nil
	}
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
		r := shape(i)
		return r != nil && (wanted == nil || wanted(r, s))
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
	return slices.ContainsFunc(s.others(m), func(o *member) bool { return r(m.end(), o.end()) == reach.Traffic{} })
}

// leaderCut reports whether a rule cuts the leader from any other member.
func leaderCut(r rule, s *subject) bool {
	leader := s.leader()
	return slices.ContainsFunc(s.others(leader), func(o *member) bool { return r(leader.end(), o.end()) != reach.Traffic{} })
}

// seedFor returns a seed whose rule is as wanted, if the fault has a shape.
func (s *subject) seedFor(wanted func(rule, *subject) bool) uint64 {
	if shape := shapes[s.kind]; shape != nil {
		return s.ruleWanted(shape, wanted)
	}
	return 1
}

// leaderFalls expects another leader.
func leaderFalls(wanted func(rule, *subject) bool) check {
	return func(t *testing.T, s *subject) { s.during(t, s.seedFor(wanted), s.anotherLeads(s.leader())) }
}

// unsynced expects that not all members follow one leader any longer.
func unsynced(wanted func(rule, *subject) bool) check {
	return func(t *testing.T, s *subject) {
		s.during(t, s.seedFor(wanted), func() error {
			if s.unsynced(s.members) == nil {
				return errors.New("all members are synced")
			}
			return nil
		})
	}
}

// notServing expects that as many members do not serve.
func notServing(n int) check {
	return func(t *testing.T, s *subject) { s.during(t, s.seedFor(nil), s.served(len(s.members)-n)) }
}

func checkFlapping(t *testing.T, s *subject) {
	end := s.inject(t, 1)
	// The links must be cut twice, and whole twice.
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
func (s *subject) traffic(from, to end) reach.Traffic {
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

// slow returns a condition: a write takes longer than limit.
func (s *subject) slow(t *testing.T, limit time.Duration) func() error {
	return func() error {
		if d := took(t, func() error { s.write(t); return nil }); d < limit {
			return fmt.Errorf("a write took %v", d)
		}
		return nil
	}
}

func checkMembersLatency(t *testing.T, s *subject) {
	seed := s.seed(func(i *injection) bool {
		return delayMembers(i)(s.leader().end(), s.others(s.leader())[0].end()).Delay > 100*time.Millisecond
	})
	s.during(t, seed, s.slow(t, 100*time.Millisecond))
}

// ask sends a four-letter word to a member over a link of a client. It returns what arrived.
func (s *subject) ask(t *testing.T, client, at int) (string, error) {
	t.Helper()
	addrs := suite.Got(s.Connect(client))(t)
	return reach.Ask(strings.Split(addrs, ",")[at], "srvr")
}

// clientsUnanswered expects that no answer comes over links whose traffic is not whole, and that
// answers come over the others.
func clientsUnanswered(t *testing.T, s *subject) {
	end := s.inject(t, s.seedFor(func(r rule, s *subject) bool { return s.mixed(r, s.members[0]) }))
	s.expectAnswers(t)
	end()
}

func (s *subject) expectAnswers(t *testing.T) {
	t.Helper()
	// The fault begins in another goroutine.
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
			whole := s.traffic(from, m.end()) == reach.Traffic{} && s.traffic(m.end(), from) == reach.Traffic{}
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
	end := s.inject(t, s.ruleWanted(splitBrain, func(r rule, s *subject) bool { return s.mixed(r, before) }))
	s.expectAnswers(t)
	s.await(t, s.anotherLeads(before))
	end()
}

// mixed reports whether a rule affects the traffic of some clients with a member, but not of all.
func (s *subject) mixed(r rule, m *member) bool {
	cut := 0
	for n := range clients {
		client := end{client: true, n: n}
		if r(client, m.end()) != (reach.Traffic{}) || r(m.end(), client) != (reach.Traffic{}) {
			cut++
		}
	}
	return cut > 0 && cut < clients
}

func checkClientsLatency(t *testing.T, s *subject) {
	seed := s.seed(func(i *injection) bool {
		return delayClients(i)(end{client: true}, end{n: 1}).Delay > 100*time.Millisecond
	})
	s.during(t, seed, func() error {
		if d := took(t, func() error { _, err := s.ask(t, 0, 0); return err }); d < 200*time.Millisecond {
			return fmt.Errorf("an answer took %v", d)
		}
		return nil
	})
}

func checkClientsReset(t *testing.T, s *subject) {
	end := s.inject(t, s.seed(func(i *injection) bool { return i.someClients()[0] }))
	addrs := suite.Got(s.Connect(0))(t)
	conn, err := net.Dial("tcp", strings.Split(addrs, ",")[0])
	if err == nil { // else the reset was faster than Dial
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	end()
}

const isStopped = `grep -q '^State:.T' /proc/$server/status`

// dead expects that as many processes, or more, have ended.
func dead(n int) check { return processes(n, `! kill -0 "$server"`) }

// stopped expects that as many processes, or more, are stopped.
func stopped(n int) check { return processes(n, isStopped) }

func processes(n int, code string) check {
	return func(t *testing.T, s *subject) {
		require.Zero(t, s.count(code))
		s.during(t, s.seedFor(nil), s.counted(code, n))
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
		s.await(t, s.counted("! "+isStopped, 3))
		s.await(t, s.counted(isStopped, 1))
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
	s.during(t, 1, func() error {
		// Two more epochs, because an election can also happen by chance.
		if now := epoch(); now < before+2 {
			return fmt.Errorf("epoch %d", now)
		}
		return nil
	})
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
	s.during(t, 1, func() error {
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
	return both
}

func checkRolling(t *testing.T, s *subject) {
	require.Equal(t, 3, s.count("echo $server >before"))
	suite.Got(s.Inject(t.Context(), s.kind, random(1), time.Second, clients))(t)
	require.Zero(t, s.count(`[ "$(cat before)" = $server ]`))
}

// checkReconfig removes members that follow and lead, and that are shut down and go on. Each is a
// member again as soon as the fault is over.
func checkReconfig(t *testing.T, s *subject) {
	for n := range 4 {
		leads, shutDown := n < 2, n%2 == 0
		leader := s.leader()
		end := s.inject(t, s.seed(func(i *injection) bool {
			// Draw in the order in which removeMembers draws.
			all, err := i.claim(len(i.members))
			i.r.IntN(i.minority())
			return err == nil && (all[0] == leader) == leads && (i.r.IntN(2) == 0) == shutDown
		}))
		s.awaitVoters(t, 2)
		if shutDown {
			s.await(t, s.served(2))
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
	s.during(t, 1, func() error {
		s.write(t)
		if !strings.Contains(s.logs(t), message) {
			return errors.New("no write has failed")
		}
		return nil
	})

	m := s.members[0]
	require.NoError(t, m.kill())
	require.NoError(t, m.shell("touch data/version-2/log.fffffffff")) // as a full disk may leave it
	s.heal(t)
}

func checkDiskSlow(t *testing.T, s *subject) {
	var delay time.Duration
	seed := s.seed(func(i *injection) bool {
		// Draw in the order in which slowDisks draws.
		members, err := some(i)
		delay = i.between(50*time.Millisecond, time.Second)
		return err == nil && len(members) >= 2 && delay > 200*time.Millisecond && delay < 400*time.Millisecond
	})
	s.during(t, seed, s.slow(t, delay))
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
	// Only lines from here on are about this fault.
	known := len(s.synced(t))
	s.during(t, 1, s.counted("[ ! -e data/version-2 ]", 1))
	s.heal(t)
	// The leader found a member that had nothing.
	require.Contains(t, s.synced(t)[known:], uint64(0))
}

func checkAmnesia(t *testing.T, s *subject) {
	s.write(t)
	end := s.inject(t, 1)
	s.await(t, s.counted("[ -e old ] && ! "+isStopped, 1)) // the copy is complete
	// Two writes after the copy, for the member to forget.
	copied := s.zxid()
	s.write(t)
	s.write(t)
	known := len(s.synced(t))
	end()
	s.heal(t)

	// The member came back as old as its copy, and not empty.
	back := slices.Min(s.synced(t)[known:])
	require.LessOrEqual(t, back, copied)
	require.NotZero(t, back)
}

func checkClockJump(t *testing.T, s *subject) {
	seed := s.seed(func(i *injection) bool {
		members, err := oneOrAll(i)
		return err == nil && len(members) == len(s.members)
	})
	s.during(t, seed, func() error {
		_, stat, err := s.conn.Get(s.write(t))
		if err != nil {
			return err
		}
		if off := time.Since(time.UnixMilli(stat.Ctime)); off.Abs() < time.Hour {
			return fmt.Errorf("the clock is off by %v", off)
		}
		return nil
	})
}

// clock returns for how long the first member has run, by its monotonic clock. 3.4 does not tell
// that. Its leader's wall clock runs at the same rate.
func (s *subject) clock(t *testing.T) (time.Duration, error) {
	answer, err := reach.Ask(s.members[0].addr(), "mntr")
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

// rate returns a lower bound of the rate of that clock.
func (s *subject) rate(t *testing.T) (float64, error) {
	begin := time.Now() // before the first reading, and the end is after the second
	first, err := s.clock(t)
	if err != nil {
		return 0, err
	}
	time.Sleep(time.Second)
	second, err := s.clock(t)
	return float64(second-first) / float64(time.Since(begin)), err
}

func checkClockRate(t *testing.T, s *subject) {
	seed := s.seed(func(i *injection) bool {
		// Draw in the order in which driftClocks draws.
		members, err := oneOrAll(i)
		i.r.Float64()
		slow, rate := i.r.IntN(2) == 0, i.r.Float64()
		return err == nil && len(members) == len(s.members) && slow && rate < 0.2
	})
	s.during(t, seed, func() error {
		rate, err := s.rate(t)
		if err == nil && (rate > 0.7 || rate < 0.1) {
			err = fmt.Errorf("the clock runs at %.2f", rate)
		}
		return err
	})
}

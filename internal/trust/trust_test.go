package trust

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const second = time.Second

// at is a moment of a test's own time.
func at(d time.Duration) time.Time { return time.Unix(1e9, 0).Add(d) }

// newTrust is the trust of a session of 12 seconds, so that a share is a second, which began at
// moment 0.
func newTrust() *Trust {
	t := new(Trust)
	t.Began(at(0), 12*second)
	return t
}

func TestTrustRunsFromTheHandshake(t *testing.T) {
	t.Parallel()
	tr := newTrust()
	require.Equal(t, at(8*second), tr.Deadline())
	require.False(t, tr.Over(at(8*second-1)))
	require.True(t, tr.Over(at(8*second)))
	require.False(t, tr.Silent(at(12*second-1)))
	require.True(t, tr.Silent(at(12*second)))
}

// TestTrustNeedsTheServerTheLeaderAndAQuorum loses the answers of one of them at a time.
func TestTrustNeedsTheServerTheLeaderAndAQuorum(t *testing.T) {
	t.Parallel()
	for by, until := range map[Witness]struct {
		want  time.Duration
		lapse string
	}{
		Member: {8 * second, "the leader has not answered for 8s, so the ensemble may have expired it"},
		Leader: {11 * second, "no quorum has agreed to a write for 11s, so the ensemble may have expired it"},
		// The contact at 15 s was reported before the write at 19 s.
		Quorum: {26 * second, "the leader need not have heard from it for 11s, so the ensemble may have expired it"},
	} {
		want := until.want
		tr := newTrust()
		for s := range 20 * second / second {
			tr.Answered(at(s*second), at(s*second), by)
		}
		require.Equal(t, at(want), tr.Deadline())
		require.Equal(t, want <= 20*second, tr.Over(at(20*second)))
		require.Equal(t, until.lapse, tr.Lapse(at(want)))
		require.False(t, tr.Silent(at(19*second)), "but it was heard of")
	}
}

func TestTrustIsRenewedFromTheSendTimeOfWhatIsAnswered(t *testing.T) {
	t.Parallel()
	tr := newTrust()
	tr.Answered(at(second), at(5*second), Quorum)
	require.Equal(t, at(9*second), tr.Deadline(), "however long the answer took")

	tr = newTrust()
	tr.Answered(at(2*second), at(2*second), Member)
	tr.Answered(at(6*second), at(8*second), Quorum)
	require.Equal(t, at(13*second), tr.Deadline(), "the contact at 2 s was reported by 6 s, and counts for 11 s")
	tr.Answered(at(6*second), at(9*second), Member)
	require.Equal(t, at(13*second), tr.Deadline())
}

func TestTrustCountsNoContactThatMayNotHaveBeenReported(t *testing.T) {
	t.Parallel()
	tr := newTrust()
	tr.Answered(at(4*second), at(4*second), Member)
	tr.Answered(at(7*second), at(7*second), Quorum) // 7 s - T/3 = 3 s
	require.Equal(t, at(11*second), tr.Deadline(), "of all contacts only the handshake is sure to be known")
}

func TestTrustNeverMovesBackByALateAnswer(t *testing.T) {
	t.Parallel()
	tr := newTrust()
	for s := range 4 {
		tr.Answered(at(time.Duration(s)*second), at(time.Duration(s)*second), Quorum)
	}
	before := tr.Deadline()
	tr.Answered(at(second), at(4*second), Quorum)
	require.Equal(t, before, tr.Deadline())
}

func TestResumptionIsConfirmedByTheLeaderAlone(t *testing.T) {
	t.Parallel()
	tr := newTrust()
	tr.Began(at(7*second), 12*second)
	require.Equal(t, at(11*second), tr.Deadline())
	due, write := tr.Due(at(7*second), false)
	require.True(t, write)
	require.False(t, due.After(at(7*second)), "a quorum is asked at once")
}

func TestProofsAreDue(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	contacts := func(latency time.Duration) *Trust { // one every 1.5 s from 0 to 12 s, the first a write
		tr := newTrust()
		for c := time.Duration(0); c <= 12*second; c += 1500 * ms {
			by := Leader
			if c%(6*second) == 0 {
				by = Quorum
			}
			tr.Answered(at(c), at(c+latency), by)
		}
		return tr
	}
	require.Equal(t, 5*second, contacts(ms).Deadline().Sub(at(12*second))-1500*ms, "before the next proof")

	require.Equal(t, at(12501*ms), contacts(501*ms).troubled)
	troubled := contacts(ms)
	troubled.troubled = at(11 * second)

	for name, c := range map[string]struct {
		trust *Trust
		now   time.Duration
		want  time.Duration
		write bool
	}{
		"prompt answers":                         {contacts(ms), 12 * second, 13500 * ms, false},
		"an answer was late":                     {troubled, 12 * second, 12750 * ms, false},
		"an answer was late, half a timeout ago": {troubled, 17 * second, 13500 * ms, false},
		"all answers are late":                   {contacts(501 * ms), 12 * second, 12001 * ms, false},
		"a contact that will be known sooner": {func() *Trust {
			tr := newTrust()
			tr.Answered(at(5*second), at(5*second), Member) // a ping
			tr.Answered(at(8*second), at(8*second), Quorum)
			return tr
		}(), 8 * second, 9 * second, false},
		"a write, in time to be answered": {func() *Trust {
			tr := newTrust()
			tr.Answered(at(0), at(200*ms), Quorum)
			for c := 1500 * ms; c <= 4500*ms; c += 1500 * ms {
				tr.Answered(at(c), at(c), Leader)
			}
			return tr
		}(), 5 * second, 5800 * ms, true},
		"a write, after a resumption": {func() *Trust {
			tr := contacts(ms)
			tr.Began(at(15500*ms), 12*second)
			return tr
		}(), 15500 * ms, 14999 * ms, true},
	} {
		due, write := c.trust.Due(at(c.now), false)
		require.Equal(t, c.want, due.Sub(at(0)), name)
		require.Equal(t, c.write, write, name)
		_, write = c.trust.Due(at(c.now), true)
		require.False(t, write, name)
	}
}

func TestOnlyWhatAResumptionRenewsIsWorthOne(t *testing.T) {
	t.Parallel()
	tr := newTrust()
	require.True(t, tr.Renewable())
	for s := range 8 {
		tr.Answered(at(time.Duration(s)*second), at(time.Duration(s)*second), Leader)
	}
	require.False(t, tr.Renewable(), "no quorum has agreed to anything since the start")
}

func TestElapsedIsTheLongerOfTwoClocks(t *testing.T) {
	t.Parallel()
	since := time.Now()
	for name, c := range map[string]struct {
		now  time.Time
		want time.Duration
	}{
		"both agree":                       {since.Add(5 * second), 5 * second},
		"the machine slept for a minute":   {setWall(since.Add(second), time.Minute), time.Minute + second},
		"the wall clock was set back":      {setWall(since.Add(5*second), -time.Hour), 5 * second},
		"there is no monotonic clock":      {since.Add(5 * second).Round(0), 5 * second},
		"nothing has passed, clock behind": {setWall(since, -time.Hour), 0},
	} {
		require.Equal(t, c.want, Elapsed(since, c.now), name)
	}
}

func TestTrustRunsOutWhileTheMachineSleeps(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tr := new(Trust)
	tr.Began(now, 12*second)
	require.False(t, tr.Over(now.Add(second)))
	require.True(t, tr.Over(setWall(now.Add(second), 8*second)))
	require.True(t, tr.Silent(setWall(now.Add(second), 12*second)))
}

// setWall moves the wall clock of a moment by whole seconds and leaves its monotonic clock alone.
func setWall(moment time.Time, by time.Duration) time.Time {
	// As in package time: the wall clock's seconds are the 33 bits above its nanoseconds.
	inside := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&moment))
	inside.wall += uint64(int64(by/second) << 30)
	return moment
}

// TestTrustNeverOutlivesTheSession runs a client with random requests against a model of a follower
// and its leader. At random moments the follower is cut off, and the leader deposed. Whatever the
// client has heard until then, its deadline must not be after the moment at which the session may
// be expired.
func TestTrustNeverOutlivesTheSession(t *testing.T) {
	t.Parallel()
	for range 50 { // times a hundred: it is close only where everything comes together
		rapid.Check(t, func(t *rapid.T) {
			trusted, expires := drawEnsemble(t).play(t)
			if trusted > expires {
				t.Fatalf("trusted until %d, may be given up from %d on", trusted, expires)
			}
		})
	}
}

// An ensembleModel is one follower, whose client is the one under test, and its leader. Time is in
// milliseconds.
//
// The leader pings every half tick; the follower answers with the sessions that it was in touch
// with since the ping before. What the follower forwards stays behind those reports, and what the
// leader answers in order, too. A leader that was deposed goes on as before, but no quorum agrees
// to anything any more. Its successor gives every session a whole new timeout.
type ensembleModel struct {
	timeout, halfTick int
	lateness          func() int // of a ping, after the one before
	toLeader          func() int // delays, of one message each
	toFollower        func() int
	toClient          func() int // both ways
	pause             func() int // between two requests
	last              int        // request before the follower is cut off
	cut               int        // nothing that it sends from then on arrives
	deposed           int
}

func drawEnsemble(t *rapid.T) *ensembleModel {
	upTo := func(name string, most int) func() int { // the extremes often
		draw := rapid.OneOf(rapid.Just(0), rapid.Just(most), rapid.IntRange(0, most))
		return func() int { return draw.Draw(t, name) }
	}
	timeout := rapid.IntRange(240, 2400).Draw(t, "timeout")
	return &ensembleModel{
		timeout:    timeout,
		halfTick:   timeout/40 + upTo("half a tick", timeout/4-timeout/40)(),
		lateness:   upTo("late", timeout/12),
		toLeader:   upTo("to leader", timeout/rapid.IntRange(1, 50).Draw(t, "speed")),
		toFollower: upTo("to follower", timeout/2),
		toClient:   upTo("to client", timeout/rapid.IntRange(3, 50).Draw(t, "speed")),
		pause:      upTo("pause", timeout/rapid.IntRange(2, 20).Draw(t, "rate")),
		last:       rapid.IntRange(0, 39).Draw(t, "cut behind"),
		cut:        math.MaxInt,
		deposed:    rapid.IntRange(0, 20*timeout).Draw(t, "deposed"),
	}
}

// play returns until when the client trusts its session in the end, and from when on a leader may
// expire it.
func (m *ensembleModel) play(t *rapid.T) (trusted, expires int) {
	tr := new(Trust)
	moment := func(ms int) time.Time { return at(time.Duration(ms) * time.Millisecond) }
	tr.Began(moment(0), time.Duration(m.timeout)*time.Millisecond)
	type answer struct {
		sent, at int
		by       Witness
	}
	var (
		answers  []answer
		touched  = m.toClient() // when the leader learnt of a contact last, or of the handshake
		arrived  = touched      // at the follower
		nextPing = touched
		pending  = false // a contact that was not reported yet
		forward  int     // what came last from there: messages keep their order
		backward int
		seen     int
	)
	m.deposed = max(m.deposed, touched) // the session was opened
	pings := func(until int) {
		for ; nextPing <= until; nextPing += m.halfTick + m.lateness() {
			if pending && nextPing < m.cut {
				forward = max(forward, nextPing+m.toLeader())
				touched, pending = max(touched, forward), false
			}
		}
	}
	now := 0
	for i := range m.last + 20 {
		now += m.pause()
		by := Witness(rapid.IntRange(int(Member), int(Quorum)).Draw(t, "by"))
		arrived = max(arrived, now+m.toClient())
		if i == m.last {
			by, m.cut = Quorum, arrived+1
		}
		pings(arrived)
		pending = true
		back := arrived
		if by != Member {
			if arrived >= m.cut {
				continue // never answered
			}
			forward = max(forward, arrived+m.toLeader())
			if by == Quorum && forward >= m.deposed {
				continue
			}
			backward = max(backward, forward+m.toFollower())
			back = backward
		}
		seen = max(seen, back+m.toClient())
		answers = append(answers, answer{now, seen, by})
	}
	pings(m.cut)
	for _, a := range answers {
		tr.Answered(moment(a.sent), moment(a.at), a.by)
	}
	expires = touched + m.timeout
	if expires >= m.deposed { // no quorum agrees to its end then, until there is another leader
		expires = m.deposed + m.timeout
	}
	return int(tr.Deadline().Sub(at(0)) / time.Millisecond), expires
}

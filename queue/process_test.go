package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// workerEnv has the test binary be a process that uses a queue, as its value says.
const workerEnv = "ZKRECIPES_QUEUE_WORKER"

// A worker offers entries that begin with its name, or takes what there is, or reserves and
// acknowledges it.
type worker struct {
	Servers, Path, Name, Does string
}

// A note is what a worker says of its session, or, when that is over, of an operation.
type note struct {
	Session int64
	What    string // about to be "offered", "offered", "taken", "acknowledged"; or "uncertain"
	Data    string
}

// runWorker works until the standard input ends, which it does when the parent dies, too.
func runWorker(config string) (status int) {
	var w worker
	if err := json.Unmarshal([]byte(config), &w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	suite.UntilStdinEnds(cancel)
	client, err := protocol.Connect(ctx, w.Servers, protocol.WithSessionTimeout(2*time.Second))
	if err != nil {
		return 0
	}
	defer client.Close()
	out := json.NewEncoder(os.Stdout)
	say := func(what string, data []byte) {
		var id int64
		if s, err := client.Session(ctx); err == nil {
			id = s.ID()
		}
		out.Encode(note{id, what, string(data)})
	}
	q := queue.New(client, w.Path)
	for n := 0; ctx.Err() == nil; n++ {
		switch w.Does {
		case "offer":
			data := fmt.Appendf(nil, "%s-%d", w.Name, n)
			say("offering", data)
			_, err := q.Offer(ctx, data)
			switch {
			case err == nil:
				say("offered", data)
			case !errors.Is(err, protocol.ErrUncertain):
				say("withdrawn", data)
			}
		case "take":
			say("taking", nil)
			data, err := q.Take(ctx)
			switch {
			case err == nil:
				say("taken", data)
			case errors.Is(err, protocol.ErrUncertain):
				say("uncertain", data)
			}
		case "reserve":
			item, err := q.Reserve(ctx)
			if err != nil {
				continue
			}
			say("acknowledging", item.Data())
			err = item.Ack(ctx)
			switch {
			case err == nil:
				say("acknowledged", item.Data())
			case !errors.Is(err, protocol.ErrLost), errors.Is(err, protocol.ErrUncertain):
				say("uncertain", item.Data())
			}
		}
	}
	return 0
}

// Processes are killed. On servers that can do that to others, sessions also expire and connections
// are cut. Nothing is delivered twice, and no entry of an Offer that returned nil is lost. The
// exception is what a process had taken that was killed before it could say so.
func TestKilledProcessesLoseNoEntries(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
		const deliveries, troubles = 300, 12
		path := srv.Root(t) + "/q"
		var mu sync.Mutex // protects what follows
		offering, offered, delivered := make(map[string]bool), make(map[string]bool), make(map[string]int)
		vague := make(map[string]bool) // what a process may have got
		sessions := make(map[int]int64)
		taking := make(map[int]bool)
		progress := make(chan struct{}, 1)

		roles := []string{"offer", "offer", "take", "take", "reserve"}
		start := func(i, life int) *suite.Process {
			w := worker{srv.ConnectString(), path, fmt.Sprintf("%d.%d", i, life), roles[i]}
			return suite.StartProcess(t, workerEnv, w, func(line []byte) {
				var n note
				if json.Unmarshal(line, &n) != nil {
					return // it was killed while it wrote
				}
				mu.Lock()
				defer mu.Unlock()
				sessions[i], taking[i] = n.Session, n.What == "taking"
				switch n.What {
				case "offering":
					offering[n.Data] = true
				case "withdrawn":
					delete(offering, n.Data)
				case "offered":
					offered[n.Data] = true
				case "acknowledging", "uncertain":
					vague[n.Data] = true
				case "taken", "acknowledged":
					delivered[n.Data]++
					select {
					case progress <- struct{}{}:
					default:
					}
				}
			})
		}
		var all []*suite.Process
		for i := range roles {
			all = append(all, start(i, 0))
		}
		unsaid := 0 // entries that a process may have taken that was killed before it could say so
		for struck, done := 0, 0; done < deliveries; {
			select {
			case <-progress:
			case <-time.After(timeout):
				require.FailNow(t, "no progress", "after %d deliveries and %d troubles", done, struck)
			}
			mu.Lock()
			done = len(delivered)
			mu.Unlock()
			if struck == troubles || done <= struck*deliveries/troubles {
				continue
			}
			victim := struck % len(all)
			switch e := srv.Embedded(); {
			case e == nil || struck%3 == 0:
				all[victim].Kill()
				mu.Lock()
				if taking[victim] {
					unsaid++
				}
				mu.Unlock()
				all[victim] = start(victim, struck+1)
			case struck%3 == 1:
				mu.Lock()
				id := sessions[victim]
				mu.Unlock()
				e.ExpireSession(id)
			default:
				e.DropConnections()
			}
			struck++
		}
		for _, p := range all {
			p.End(t)
		}
		rest := make(map[string]bool)
		ctx, q := patient(t), queue.New(srv.Client(t), path)
		for n := 1; n > 0; { // also what was reserved by one that was killed, which comes back
			left, err := q.PollN(ctx, 1000)
			switch {
			case err == nil:
				for _, data := range left {
					require.False(t, rest[string(data)], "%s is there more than once", data)
					rest[string(data)] = true
				}
			case errors.Is(err, protocol.ErrUncertain): // the server may have removed the queue as soon as it was empty
				for _, data := range left {
					vague[string(data)] = true
				}
			default:
				require.ErrorIs(t, err, queue.ErrEmpty)
				n, err = q.Len(ctx)
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
			}
		}
		for data, n := range delivered {
			require.Equal(t, 1, n, "%s was delivered more than once", data)
			require.False(t, rest[data], "%s was delivered, and is there", data)
			require.True(t, offering[data], "%s was never offered", data)
		}
		missing := 0
		for data := range offered {
			if delivered[data] == 0 && !rest[data] && !vague[data] {
				missing++
			}
		}
		require.LessOrEqual(t, missing, unsaid, "entries that are lost")
		t.Logf("%d were offered, %d delivered, %d are left, %d are missing", len(offered), len(delivered), len(rest), missing)
	})
}

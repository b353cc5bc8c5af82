package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Ask sends a four-letter word to the server at addr and returns the answer.
func Ask(addr, word string) (string, error) {
	const limit = 2 * time.Second
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()

	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}

	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// A Report is a server's report about itself.
type Report struct {
	Version string // 3.8.0, for example
	Mode    string // standalone, leader, follower
	Zxid    uint64 // the latest zxid
}

// Leads reports whether the server leads, or is the only server.
func (r Report) Leads() bool { return r.Mode == "leader" || r.Mode == "standalone" }

// Epoch returns the epoch of the latest zxid. (A leader has an epoch of its own.)
func (r Report) Epoch() uint64 { return r.Zxid >> 32 }

var errNotServing = errors.New("not serving")

// AskReport asks a server for its report. It returns errNotServing while the server is not part of
// a quorum.
func AskReport(addr string) (Report, error) {
	answer, err := Ask(addr, "srvr")
	if err != nil {
		return Report{}, err
	}

	var r Report
	for line := range strings.Lines(answer) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Zookeeper version":
			r.Version, _, _ = strings.Cut(value, "-")
		case "Mode":
			r.Mode = value
		case "Zxid":
			if _, err := fmt.Sscanf(value, "0x%x", &r.Zxid); err != nil {
				return Report{}, fmt.Errorf("zxid %q: %w", value, err)
			}
		}
	}

	// A server without a quorum answers, but reports no mode.
	if r.Mode == "" {
		return Report{}, errNotServing
	}
	return r, nil
}

// Each calls do for all servers at the same time, and joins their errors.
func Each[S any](servers []S, do func(S) error) error {
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { errs[i] = do(s) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Reports asks servers for reports at the same time, each at its address. It returns the reports of
// servers that serve.
func Reports[S comparable](servers []S, addr func(S) string) map[S]Report {
	var mu sync.Mutex
	reports := make(map[S]Report)
	Each(servers, func(s S) error {
		r, err := AskReport(addr(s))
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			reports[s] = r
		}
		return err
	})
	return reports
}

// Leader returns the server that leads, or the zero value. (An isolated leader claims to lead for a
// while after the others have elected another leader. Then Leader returns the new leader.)
func Leader[S comparable](reports map[S]Report) (leader S) {
	var none S
	for s, r := range reports {
		if r.Leads() && (leader == none || r.Epoch() > reports[leader].Epoch()) {
			leader = s
		}
	}
	return leader
}

// SyncedLeader returns the server that leads, and all reports. If a server does not serve, or if
// they don't all follow one leader and are synced with it, it returns an error.
func SyncedLeader[S comparable](servers []S, addr func(S) string) (leader S, reports map[S]Report, err error) {
	reports = Reports(servers, addr)
	leaders := 0
	for _, s := range servers {
		r, ok := reports[s]
		if !ok {
			return leader, nil, fmt.Errorf("%s does not serve", addr(s))
		}
		if r.Leads() {
			leader = s
			leaders++
		}
	}

	// A leader that was replaced can claim to lead for a while.
	if leaders != 1 {
		return leader, nil, fmt.Errorf("%d servers lead", leaders)
	}
	if len(servers) == 1 {
		return leader, reports, nil
	}
	synced, err := syncedFollowers(addr(leader))
	if err == nil && synced < len(servers)-1 {
		err = fmt.Errorf("%d followers are synced", synced)
	}
	return leader, reports, err
}

// syncedFollowers asks a leader how many followers are synced with it.
func syncedFollowers(addr string) (int, error) {
	answer, err := Ask(addr, "mntr")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(answer) {
		if value, ok := strings.CutPrefix(line, "zk_synced_followers\t"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int(n), err
		}
	}

	return 0, errNotServing
}

// Poll calls check, with growing pauses, until it returns nil. If ctx ends first, Poll returns the
// last error of check.
func Poll(ctx context.Context, check func() error) error {
	pause := 5 * time.Millisecond
	for {
		err := check()
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			// Most things happen within milliseconds, and an election takes seconds.
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

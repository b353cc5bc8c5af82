package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
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

	if r.Mode == "" {
		return Report{}, errNotServing
	}
	return r, nil
}

// SyncedFollowers asks a leader how many followers are synced with it.
func SyncedFollowers(addr string) (int, error) {
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
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

// AwaitServing waits until the server at addr serves clients.
func AwaitServing(ctx context.Context, addr string) error {
	return Poll(ctx, func() error {
		_, err := AskReport(addr)
		return err
	})
}

package ensemble

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

// ask sends a four-letter word to the server at addr and returns the answer.
func ask(addr, word string) (string, error) {
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

// A report is the state of a server, by its own account.
type report struct {
	mode  string // standalone, leader, follower
	epoch uint64 // of the last zxid; a leader's own epoch
}

func (r report) leads() bool { return r.mode == "leader" || r.mode == "standalone" }

var errNotServing = errors.New("not serving")

// askReport asks a server for its report. It returns errNotServing while the server is not part of
// a quorum.
func askReport(addr string) (report, error) {
	answer, err := ask(addr, "srvr")
	if err != nil {
		return report{}, err
	}

	var r report
	for line := range strings.Lines(answer) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Mode":
			r.mode = value
		case "Zxid":
			var zxid uint64
			if _, err := fmt.Sscanf(value, "0x%x", &zxid); err != nil {
				return report{}, fmt.Errorf("zxid %q: %w", value, err)
			}
			r.epoch = zxid >> 32
		}
	}

	if r.mode == "" {
		return report{}, errNotServing
	}
	return r, nil
}

// syncedFollowers asks a leader how many followers are synced with it.
func syncedFollowers(addr string) (int, error) {
	answer, err := ask(addr, "mntr")
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

// poll calls check with growing pauses until it returns nil. If ctx ends first, poll returns the
// last error of check.
func poll(ctx context.Context, check func() error) error {
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

// awaitServing waits until the server at addr serves clients.
func awaitServing(ctx context.Context, addr string) error {
	return poll(ctx, func() error {
		_, err := askReport(addr)
		return err
	})
}

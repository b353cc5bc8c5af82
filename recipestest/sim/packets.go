package sim

import (
	"fmt"
	"strings"
	"time"
)

const (
	packetsFor  = 5 * time.Second // how long before a failure its timeline lists packets
	packetLines = 20              // how many of each client's packets its text lists
)

// latestPackets returns the lines of a link's trace from the last seconds before until. Its times
// count from the beginning of the world (the trace's count from when the link was made).
func latestPackets(trace string, linked, until time.Duration) string {
	var b strings.Builder
	for line := range strings.Lines(trace) {
		at, packet, _ := strings.Cut(strings.TrimSpace(line), "  ")
		since, err := time.ParseDuration(at)
		if err != nil {
			fmt.Fprintln(&b, line)
			continue
		}
		if since += linked; since > until-packetsFor && since <= until {
			fmt.Fprintf(&b, "%9.6fs  %s\n", since.Seconds(), packet)
		}
	}

	return b.String()
}

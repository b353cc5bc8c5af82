package embedded

import (
	"strconv"
	"strings"
)

// A client sets a quota for the nodes at and below a path by two nodes below quotaRoot and the
// path: one has the limits, and in the other the server counts.
const (
	quotaRoot   = "/zookeeper/quota"
	quotaLimits = "/zookeeper_limits"
	quotaStats  = "/zookeeper_stats"
)

// A quota is the data of such a node, by name.
type quota map[string]int64

// parseQuota reads names and numbers like those in "count=-1,bytes=-1=;countHardLimit=5". It
// ignores anything else.
func parseQuota(data []byte) quota {
	q := make(quota)
	for _, field := range strings.FieldsFunc(string(data), func(r rune) bool { return r == ',' || r == ';' }) {
		name, value, _ := strings.Cut(strings.TrimSuffix(field, "="), "=")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			q[name] = n
		}
	}
	return q
}

// refuses reports whether a hard limit forbids so much more.
func (q quota) refuses(limit string, used, more int64) bool {
	most, ok := q[limit]
	return ok && most >= 0 && more != 0 && used+more > most
}

package embedded

import (
	"fmt"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// fourLetterWord returns the answer to a four-letter word (a client can send it instead of a
// packet), or nil if word isn't one.
func (s *Server) fourLetterWord(c *conn, word string) []byte {
	var answer func(s *Server, c *conn, b *strings.Builder)

	switch word {
	case "ruok":
		return []byte("imok")
	case "isro":
		return []byte("rw")
	case "conf":
		answer = (*Server).conf
	case "cons":
		answer = (*Server).cons
	case "envi":
		answer = (*Server).envi
	case "mntr":
		answer = (*Server).mntr
	case "srvr":
		answer = (*Server).srvr
	case "stat":
		answer = (*Server).stat
	case "wchs":
		answer = (*Server).wchs
	default:
		return nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.received++
	c.received++

	var b strings.Builder
	answer(s, c, &b)
	s.sent++
	return []byte(b.String())
}

// trees returns the trees of the leader and of all followers.
func (s *Server) trees() []*tree {
	all := []*tree{s.tree}
	for _, f := range s.followers {
		all = append(all, f.tree)
	}
	return all
}

func (s *Server) conf(_ *conn, b *strings.Builder) {
	_, port, _ := strings.Cut(s.address, ":")
	fmt.Fprintf(b, "clientPort=%s\n", port)
	fmt.Fprintf(b, "tickTime=%d\n", s.cfg.TickTime.Milliseconds())
	fmt.Fprintf(b, "minSessionTimeout=%d\n", s.cfg.MinSessionTimeout.Milliseconds())
	fmt.Fprintf(b, "maxSessionTimeout=%d\n", s.cfg.MaxSessionTimeout.Milliseconds())
	fmt.Fprintf(b, "serverId=0\n")
}

func (s *Server) cons(self *conn, b *strings.Builder) {
	for _, c := range s.connections() {
		fmt.Fprintf(b, " /%s[%d](queued=0,recved=%d,sent=%d", c.nc.RemoteAddr(), interest(c, self), c.received, c.sent)
		if ss := c.session; ss != nil {
			fmt.Fprintf(b, ",sid=0x%x,lop=%s,est=%d,to=%d", ss.id, word(c.lastOp), c.since.UnixMilli(), ss.timeout.Milliseconds())
			// Pings have a negative xid, which isn't shown.
			if c.lastXID >= 0 {
				fmt.Fprintf(b, ",lcxid=0x%x", c.lastXID)
			}
			fmt.Fprintf(b, ",lzxid=0x%x,lresp=%d,llat=0,minlat=0,avglat=0,maxlat=0", c.lastZxid, c.answered.UnixMilli())
		}
		b.WriteString(")\n")
	}

	b.WriteByte('\n')
}

// word returns the name of an operation in the answers to four-letter words.
func word(op zkwire.Op) string {
	switch op {
	case zkwire.OpNotification:
		return "SESS" // no request yet
	case zkwire.OpMultiRead:
		return "MLTR"
	}
	name := op.String()
	return strings.ToUpper(name[:min(4, len(name))])
}

// interest returns the interest set that cons and stat report for c: none for the connection that
// asks, and reading for all others.
func interest(c, self *conn) int {
	if c == self {
		return 0
	}
	return 1
}

func (s *Server) envi(_ *conn, b *strings.Builder) {
	fmt.Fprintf(b, "Environment:\nzookeeper.version=%s\n", s.cfg.release())
}

func (s *Server) mntr(_ *conn, b *strings.Builder) {
	ephemerals := 0
	for _, owned := range s.tree.ephemerals {
		ephemerals += len(owned)
	}

	// The words report on leader and followers as if they were one server, so count all watches.
	watches := 0
	for _, t := range s.trees() {
		watches += t.data.count() + t.child.count()
	}

	size := 0
	for path, n := range s.tree.nodes {
		size += len(path) + len(n.data)
	}

	fmt.Fprintf(b, "zk_version\t%s\n", s.cfg.release())
	fmt.Fprintf(b, "zk_server_state\tstandalone\n")
	// Zero stands for things this server doesn't have (queues and local sessions) or doesn't
	// measure.
	for _, m := range []struct {
		key   string
		value int
	}{
		{"num_alive_connections", len(s.open)},
		{"outstanding_requests", 0},
		{"packets_received", s.received},
		{"packets_sent", s.sent},
		{"znode_count", len(s.tree.nodes)},
		{"watch_count", watches},
		{"ephemerals_count", ephemerals},
		{"approximate_data_size", size},
		{"global_sessions", len(s.sessions)},
		{"local_sessions", 0},
		{"min_latency", 0},
		{"avg_latency", 0},
		{"max_latency", 0},
	} {
		fmt.Fprintf(b, "zk_%s\t%d\n", m.key, m.value)
	}
}

func (s *Server) srvr(_ *conn, b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s\n", s.cfg.release())
	s.summary(b)
}

func (s *Server) stat(self *conn, b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s\nClients:\n", s.cfg.release())
	for _, c := range s.connections() {
		fmt.Fprintf(b, " /%s[%d](queued=0,recved=%d,sent=%d)\n", c.nc.RemoteAddr(), interest(c, self), c.received, c.sent)
	}
	b.WriteByte('\n')
	s.summary(b)
}

func (s *Server) summary(b *strings.Builder) {
	fmt.Fprintf(b, "Latency min/avg/max: 0/0.0/0\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: 0\n",
		s.received, s.sent, len(s.open))
	fmt.Fprintf(b, "Zxid: 0x%x\nMode: standalone\nNode count: %d\n", s.tree.zxid, len(s.tree.nodes))
}

func (s *Server) wchs(_ *conn, b *strings.Builder) {
	var conns, paths, watches int
	for _, t := range s.trees() {
		conns += len(t.data.conns)
		paths += len(t.data.paths)
		watches += t.data.count()
	}
	fmt.Fprintf(b, "%d connections watching %d paths\nTotal watches:%d\n", conns, paths, watches)
}

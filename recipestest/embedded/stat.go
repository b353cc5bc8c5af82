package embedded

import "github.com/zkrecipes/zkrecipes/internal/zkwire"

// stat is the Stat of a znode.
type stat struct {
	czxid, mzxid, ctime, mtime  int64
	version, cversion, aversion int32
	ephemeralOwner              int64
	dataLength, numChildren     int32
	pzxid                       int64
}

func appendStat(b []byte, s stat) []byte {
	b = zkwire.AppendInt64(b, s.czxid)
	b = zkwire.AppendInt64(b, s.mzxid)
	b = zkwire.AppendInt64(b, s.ctime)
	b = zkwire.AppendInt64(b, s.mtime)
	b = zkwire.AppendInt32(b, s.version)
	b = zkwire.AppendInt32(b, s.cversion)
	b = zkwire.AppendInt32(b, s.aversion)
	b = zkwire.AppendInt64(b, s.ephemeralOwner)
	b = zkwire.AppendInt32(b, s.dataLength)
	b = zkwire.AppendInt32(b, s.numChildren)
	return zkwire.AppendInt64(b, s.pzxid)
}

package embedded

import "github.com/zkrecipes/zkrecipes/internal/zkwire"

// A decoder reads the fields of one request.
type decoder struct{ zkwire.Decoder }

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

func appendACLs(b []byte, list []acl) []byte {
	b = zkwire.AppendInt32(b, int32(len(list)))
	for _, a := range list {
		b = zkwire.AppendInt32(b, a.perms)
		b = zkwire.AppendString(b, a.scheme)
		b = zkwire.AppendString(b, a.id)
	}
	return b
}

// acls returns the next access control list, nil for the null list.
func (d *decoder) acls() []acl {
	var list []acl
	d.Vector(func() {
		a := acl{perms: d.Int32()}
		a.scheme, _ = d.NullableString() // null becomes the empty scheme, which is refused later
		id, ok := d.NullableString()
		if a.id = id; !ok && a.scheme != "auth" && a.scheme != "" {
			d.Bad = true
		}
		list = append(list, a)
	})
	return list
}

package layout

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// An Owner tells a contender from all others, even from contenders of its own session. Clients of
// other libraries have the zero Owner.
type Owner struct {
	Session int64
	Nonce   uint32
}

// String returns the owner as it's written in a node's name: 16 hex digits, a hyphen and 8 more
// digits.
func (o Owner) String() string {
	session, nonce := make([]byte, 0, 8), make([]byte, 0, 4)
	session = binary.BigEndian.AppendUint64(session, uint64(o.Session))
	nonce = binary.BigEndian.AppendUint32(nonce, o.Nonce)
	text := hex.AppendEncode(make([]byte, 0, ownerLength), session)
	// fmt needs so much stack that the goroutine of each lock would have to grow for it.
	return string(hex.AppendEncode(append(text, '-'), nonce))
}

const ownerLength = 16 + 1 + 8

// ParseOwner reads the owner at the beginning of a node's name. It returns the rest of the name
// (after the hyphen), and reports whether there is an owner.
func ParseOwner(name string) (o Owner, rest string, ok bool) {
	if len(name) <= ownerLength || name[16] != '-' || name[ownerLength] != '-' {
		return Owner{}, "", false
	}

	session, ok1 := parseHex(name[:16])
	nonce, ok2 := parseHex(name[17:ownerLength])
	return Owner{int64(session), uint32(nonce)}, name[ownerLength+1:], ok1 && ok2
}

// parseHex reads at most 16 digits. It refuses upper case, because our contenders never write it.
func parseHex(digits string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, err == nil && digits == strings.ToLower(digits)
}

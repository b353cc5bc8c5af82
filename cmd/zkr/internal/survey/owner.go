package survey

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
)

const (
	maxHost = 64   // bytes of a host's or a program's name that are shown
	maxData = 1000 // bytes of a contender's data that are kept
)

// An Owner is who stands behind a contender, as far as the data of its node say.
type Owner struct {
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Program   string    `json:"program,omitempty"`
	Label     string    `json:"label,omitempty"`     // of zkr --label
	HeldSince time.Time `json:"-"`                   // of zkr, by its own clock: it writes that when it is granted what it waits for
	AskedBack time.Time `json:"asked_back,omitzero"` // of zkr: when it has received a revocation
}

// said is the data of a node: protocol.Process, and what zkr adds.
type said struct {
	Version int `json:"zkrecipes,omitempty"`
	Owner
	Held time.Time `json:"held_since,omitzero"`
}

// OwnerOf reads the data of a contender's node. Texts are cut to a length that fits a line.
//
// Our contenders say who they are as protocol.Process shows, and others may: in a JSON object with
// the members host, pid and program. Curator writes its host's address, unless it was given data.
func OwnerOf(data []byte) Owner {
	var d said
	if json.Unmarshal(data, &d) == nil {
		o := d.Owner
		o.Host, o.Program, o.Label = plain.Cut(o.Host, maxHost), plain.Cut(o.Program, maxHost), plain.Cut(o.Label, maxHost)
		o.HeldSince = d.Held
		return o
	}
	if address := strings.TrimSpace(string(data[:min(len(data), maxHost)])); net.ParseIP(address) != nil {
		return Owner{Host: address}
	}
	return Owner{}
}

// Data returns the data of a node of zkr's, which [OwnerOf] and protocol.ParseProcess read.
func (o Owner) Data() []byte {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	o.Host, o.Program, o.Label = plain.Line(plain.Cut(o.Host, maxHost)), plain.Line(o.Program), plain.Line(o.Label)
	to.Encode(said{1, o, o.HeldSince}) //nolint:errchkjson // it has no value that JSON cannot hold
	return bytes.TrimSpace(b.Bytes())
}

// String says who it is in a few words, as in "web-3:4711 backup.sh (nightly)".
func (o Owner) String() string {
	var words []string
	switch {
	case o.PID != 0:
		words = append(words, fmt.Sprintf("%s:%d", o.Host, o.PID))
	case o.Host != "":
		words = append(words, o.Host)
	}
	if o.Program != "" {
		words = append(words, o.Program)
	}
	if o.Label != "" {
		words = append(words, "("+o.Label+")")
	}
	return strings.Join(words, " ")
}

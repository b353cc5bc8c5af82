package survey

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
)

const (
	maxHost = 64   // bytes of a host, a program or a label that are shown
	maxData = 1000 // bytes of a contender's data that are kept
)

// An Owner says who a contender is, as far as the data of its node tells.
type Owner struct {
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Program   string    `json:"program,omitempty"`
	Label     string    `json:"label,omitempty"`     // from zkr --label
	HeldSince time.Time `json:"held_since,omitzero"` // from zkr: when it got the lock, by its own clock
	Candidate bool      `json:"candidate,omitempty"` // from zkr elect: the contender is in line to lead
	AskedBack time.Time `json:"asked_back,omitzero"` // from zkr: when it received a revocation
}

// OwnerOf parses the data of a contender's node. It cuts texts to a length that fits a line.
//
// Our contenders write the JSON of protocol.Process. Others can do the same with an object that has
// the members host, pid and program. Curator writes its host's address (unless it was given data).
func OwnerOf(data []byte) Owner {
	var o Owner
	if json.Unmarshal(data, &o) == nil {
		o.Host, o.Program, o.Label = plain.Cut(o.Host, maxHost), plain.Cut(o.Program, maxHost), plain.Cut(o.Label, maxHost)
		return o
	}

	if address := strings.TrimSpace(string(data[:min(len(data), maxHost)])); net.ParseIP(address) != nil {
		return Owner{Host: address}
	}
	return Owner{}
}

// Data returns data for a node of zkr. [OwnerOf] and protocol.ParseProcess can read it.
func (o Owner) Data() []byte {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	o.Host, o.Program, o.Label = plain.Line(plain.Cut(o.Host, maxHost)), plain.Line(o.Program), plain.Line(o.Label)
	to.Encode(struct { //nolint:errchkjson // it has no value that JSON can't hold
		Version int `json:"zkrecipes"`
		Owner
	}{1, o})
	return bytes.TrimSpace(b.Bytes())
}

// String returns the owner in a few words ("web-3:4711 backup.sh (nightly)").
func (o Owner) String() string {
	who, label := o.Host, ""
	if o.PID != 0 {
		who = fmt.Sprintf("%s:%d", o.Host, o.PID)
	}

	if o.Label != "" {
		label = "(" + o.Label + ")"
	}

	words := slices.DeleteFunc([]string{who, o.Program, label}, func(word string) bool { return word == "" })
	return strings.Join(words, " ")
}

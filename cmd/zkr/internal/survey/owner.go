package survey

import (
	"encoding/json"
	"net"
	"strings"
)

// An Owner is who stands behind a contender, as far as the data of its node say.
type Owner struct {
	Host    string
	PID     int
	Program string
}

// ownerOf reads the data of a contender's node.
//
// Our contenders say who they are as protocol.Process shows, and others may: in a JSON object with
// the members host, pid and program. Its other members are ignored. Curator writes its host's
// address, unless it was given data.
func ownerOf(data []byte) Owner {
	var said struct {
		Host    string `json:"host"`
		PID     int    `json:"pid"`
		Program string `json:"program"`
	}

	if json.Unmarshal(data, &said) == nil {
		return Owner{said.Host, said.PID, said.Program}
	}

	if address := strings.TrimSpace(string(data)); net.ParseIP(address) != nil {
		return Owner{Host: address}
	}
	return Owner{}
}

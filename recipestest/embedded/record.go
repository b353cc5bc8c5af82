package embedded

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The data file has a header, a mark and records. All numbers are big endian, and every checksum is
// a CRC-32C.
//
//	header: magic (8 bytes), salt (8), checksum of these (4)
//	mark:   zxid (8), checksum of it (4)
//	record: length (4), checksum of salt and length (4), checksum of the payload (4), payload
//
// The payloads are a snapshot and then the transactions since. A record is written when the record
// before it has reached the disk. So only the last one can be torn. Anything else that doesn't
// match its checksum is damaged. The salt (a random number) keeps data inside a payload from
// passing for a record.
//
// The mark says up to which transaction clients were answered. It is overwritten in place and not
// synced (that would double the cost of a write), so it's a lower bound for what the records must
// have. Without it, a file whose end is missing would look complete.
const (
	magic      = "zkrdata1" // its last byte is the version
	headerSize = 20
	fileHead   = headerSize + 12 // header and mark
	recordHead = 12              // of a record, without the payload
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// summed appends b's own checksum.
func summed(b []byte) []byte { return binary.BigEndian.AppendUint32(b, checksum(b)) }

// intact reports whether b ends with the checksum of what comes before.
func intact(b []byte) bool {
	n := len(b) - 4
	return n >= 0 && checksum(b[:n]) == binary.BigEndian.Uint32(b[n:])
}

// A salt distinguishes the records of one file from those of all others.
type salt uint64

func (s salt) header() []byte { return summed(binary.BigEndian.AppendUint64([]byte(magic), uint64(s))) }

// markOf returns the mark for a zxid.
func markOf(zxid int64) []byte { return summed(binary.BigEndian.AppendUint64(nil, uint64(zxid))) }

// lengthSum returns the checksum of a record's length.
func (s salt) lengthSum(length uint32) uint32 {
	return checksum(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(s)), length))
}

// record returns a record with this payload.
func (s salt) record(payload []byte) []byte {
	b := make([]byte, 0, recordHead+len(payload))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, s.lengthSum(uint32(len(payload))))
	b = binary.BigEndian.AppendUint32(b, checksum(payload))
	return append(b, payload...)
}

// A damage is a place in the data file that isn't as it was written.
type damage struct {
	offset int
	what   string
}

func (d *damage) Error() string { return fmt.Sprintf("offset %d: %s", d.offset, d.what) }

// parseFile passes each payload of a data file to load. It returns the mark, and the size of an
// incomplete record at the end. It returns a [*damage] if the file wasn't written like this, or
// load refuses a payload. (It can't distinguish a last record that was damaged later from an
// incomplete one.)
func parseFile(b []byte, load func(payload []byte) error) (mark int64, torn int, err error) {
	switch {
	case len(b) < fileHead || !intact(b[:headerSize]):
		return 0, 0, &damage{0, "the header does not match its checksum"}
	case !bytes.HasPrefix(b, []byte(magic)):
		return 0, 0, &damage{0, fmt.Sprintf("the file begins with %q and not with %q: another version wrote it", b[:len(magic)], magic)}
	case !intact(b[headerSize:fileHead]):
		return 0, 0, &damage{headerSize, "the mark does not match its checksum"}
	}
	s := salt(binary.BigEndian.Uint64(b[len(magic):]))
	mark = int64(binary.BigEndian.Uint64(b[headerSize:]))

	for at := fileHead; at < len(b); {
		payload, end := s.parse(b, at)
		if payload == nil {
			// A bad record at the end was interrupted. If another record follows, it was damaged
			// later.
			if s.followed(b, at, end) {
				return mark, 0, &damage{at, "a record does not match its checksum"}
			}
			return mark, len(b) - at, nil
		}
		if err := load(payload); err != nil {
			return mark, 0, &damage{at, err.Error()}
		}
		at = end
	}

	return mark, 0, nil
}

// parse returns the payload of the record at an offset of b, and where the record ends. If the
// record isn't as it was written, the payload is nil. If its length is wrong too, the end is 0.
func (s salt) parse(b []byte, at int) (payload []byte, end int) {
	if len(b)-at < recordHead {
		return nil, 0
	}
	length := binary.BigEndian.Uint32(b[at:])
	// Check the length before anything relies on it.
	if s.lengthSum(length) != binary.BigEndian.Uint32(b[at+4:]) {
		return nil, 0
	}

	start := at + recordHead
	if uint64(length) > uint64(len(b)-start) {
		return nil, len(b)
	}
	end = start + int(length)
	payload = b[start:end:end]
	if checksum(payload) != binary.BigEndian.Uint32(b[at+8:]) {
		return nil, end
	}

	return payload, end
}

// followed reports whether another record was begun after the bad record at an offset of b. end is
// where the bad record ends, if that is known.
func (s salt) followed(b []byte, at, end int) bool {
	if end != 0 {
		return end < len(b)
	}
	// The length is bad too, so look for a good record at every later offset.
	for q := at + 1; q <= len(b)-recordHead; q++ {
		if payload, _ := s.parse(b, q); payload != nil {
			return true
		}
	}
	return false
}

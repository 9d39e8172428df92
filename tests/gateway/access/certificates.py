"""An authority, and certificates for this machine."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Files(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    """Writes what it signs into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.certificate = folder / f"{name}.pem"
        extension = x509.BasicConstraints(ca=True, path_length=None)
        signed = _builder(self._name, self._name, self._key).add_extension(extension, critical=True)
        self.certificate.write_bytes(signed.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, name: str) -> Files:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = _builder(_name(name), self._name, key).add_extension(names, critical=False)
        files = Files(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        files.certificate.write_bytes(signed.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)

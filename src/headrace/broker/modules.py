"""Wasm modules, for whoever administers them. Doors reach what lies below through here."""

from headrace.transforms.modules import ModuleInfo as ModuleInfo
from headrace.transforms.modules import check_module_name as check_module_name
from headrace.transforms.service import Transforms as Transforms
